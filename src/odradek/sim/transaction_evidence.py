"""What transactional clients saw: who owned which epoch, and what became of each transaction.

Every record of a transaction names it: `writer-0.2/17#3` is record 3 of transaction 17 of the third
process under the id `writer-0`, and `mover-1.0/4#2@main-1:88` is a copy of offset 88 of main-1.

A transaction has no outcome until its client was told one. If it asked for a commit and was told
nothing, either outcome is right, but only one of them, everywhere.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.client.producer import Identity
from odradek.wire.topics import TopicPartition


class Source(NamedTuple):
    """What a record is a copy of."""

    tp: TopicPartition
    offset: int


class Owner(NamedTuple):
    """A producer between two calls of init_transactions."""

    transactional_id: str
    identity: Identity


@dataclass(slots=True, eq=False)
class Attempt:
    """One transaction of one client."""

    name: str
    owner: Owner
    # The client asked for a commit: from then on its records may be read.
    is_commit_asked: bool = False
    # What the client was told, once it was.
    is_committed: bool | None = None
    # Records that were acknowledged, by where they are.
    placed: dict[TopicPartition, set[int]] = field(default_factory=dict)
    # The offsets that the movers' group commits in it.
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    # A read_committed reader has read a record of it; or has passed one by without reading it.
    is_read: bool = False
    passed_by: str | None = None

    @property
    def may_be_read(self) -> bool:
        return self.is_commit_asked and self.is_committed is not False


Report = Callable[[str, str], None]


class TransactionEvidence:
    """All transactions of a run. What contradicts itself is reported at once: invariant, what."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.attempts: dict[str, Attempt] = {}
        # The transaction of each acknowledged record.
        self.placed: dict[TopicPartition, dict[int, Attempt]] = {}
        # What the movers' group has committed in the end, once all faults are over.
        self.moved_until: dict[TopicPartition, int] = {}
        self._owners: dict[Identity, str] = {}
        self._with_offsets: dict[TopicPartition, list[Attempt]] = {}
        self._latest: dict[str, Identity] = {}

    # Owners

    def take_over(self, transactional_id: str, identity: Identity) -> Owner:
        """A client was told that it has this identity, alone: OneOwnerPerEpoch."""
        if identity in self._owners:
            self._report(
                "OneOwnerPerEpoch",
                f"{identity} was given to {self._owners[identity]} and to {transactional_id}",
            )
        self._owners[identity] = transactional_id
        latest = self._latest.get(transactional_id)
        if latest is None or latest < identity:
            self._latest[transactional_id] = identity
        return Owner(transactional_id, identity)

    def is_fenced(self, owner: Owner) -> bool:
        """Whether a later owner of the id has been told that it is one."""
        return self._latest[owner.transactional_id] > owner.identity

    def accepted(self, owner: Owner, what: str, *, was_fenced: bool) -> None:
        """ZombiesAreFenced: nothing is done that an owner asks for when it is fenced."""
        if not was_fenced:
            return
        self._report(
            "ZombiesAreFenced",
            f"{what} of {owner.transactional_id} {owner.identity} was accepted after "
            f"{self._latest[owner.transactional_id]} had taken over",
        )

    # Transactions

    def begin(self, name: str, owner: Owner) -> Attempt:
        attempt = self.attempts[name] = Attempt(name, owner)
        return attempt

    def place(self, attempt: Attempt, tp: TopicPartition, offset: int) -> None:
        """A record was acknowledged at this offset."""
        if offset >= 0:
            attempt.placed.setdefault(tp, set()).add(offset)
            self.placed.setdefault(tp, {})[offset] = attempt

    def abort(self, attempt: Attempt) -> None:
        """The client was told that the transaction is aborted."""
        attempt.is_committed = False
        if attempt.is_read:
            self._report("OnlyCommittedIsRead", f"{attempt.name} was read and then aborted")

    def attempt_of(self, value: bytes | None) -> Attempt | None:
        """The transaction of a record; None if it has none."""
        name, _, _ = (value or b"").decode("latin-1").partition("#")
        return self.attempts.get(name)

    # What read_committed readers see

    def check_read(
        self, tp: TopicPartition, start: int, end: int, records: Mapping[int, bytes | None]
    ) -> None:
        """These records were read, and no others, of the offsets from `start` to `end`."""
        for offset, value in records.items():
            attempt = self.attempt_of(value)
            if attempt is None:
                continue
            attempt.is_read = True
            if not attempt.may_be_read:
                outcome = "was aborted" if attempt.is_commit_asked else "was never to be committed"
                self._report("OnlyCommittedIsRead", f"{tp} offset {offset}: {value!r} {outcome}")
            self._check_whole(attempt)
        placed = self.placed.get(tp, {})
        for offset in range(start, end):
            if offset not in records and (passed := placed.get(offset)) is not None:
                passed.passed_by = f"{tp} offset {offset}"
                self._check_whole(passed)

    def _check_whole(self, attempt: Attempt) -> None:
        """CommittedIsReadWhole: nothing of a committed transaction is passed by."""
        if attempt.passed_by is not None and (attempt.is_committed or attempt.is_read):
            self._report(
                "CommittedIsReadWhole",
                f"{attempt.name} is committed, but a reader came by {attempt.passed_by} without it",
            )

    # Offsets in transactions

    def check_offset(self, tp: TopicPartition, found: int, committed_before: int | None) -> None:
        """PendingOffsetsInvisible: the offset is one of a transaction that may be committed; and it
        is not behind what had been committed when it was asked for, if that is to be compared."""
        if found >= 0 and not any(
            attempt.may_be_read and attempt.offsets[tp] == found
            for attempt in self._with_offsets.get(tp, ())
        ):
            self._report(
                "PendingOffsetsInvisible", f"offset {found} of {tp} was never committed by anyone"
            )
        if committed_before is not None and found < committed_before:
            self._report(
                "OffsetsNeverForgotten",
                f"the movers had committed {committed_before} in {tp}, and now {found}",
            )

    def move(self, attempt: Attempt, tp: TopicPartition, offset: int) -> None:
        """The movers' group commits this offset in the transaction."""
        attempt.offsets[tp] = offset
        self._with_offsets.setdefault(tp, []).append(attempt)

    def committed_offset(self, tp: TopicPartition) -> int:
        """The highest offset of which a client knows that it is committed; -1 if none."""
        return max(
            (
                attempt.offsets[tp]
                for attempt in self._with_offsets.get(tp, ())
                if attempt.is_committed
            ),
            default=-1,
        )


def source_of(value: bytes | None) -> Source | None:
    """What a record is a copy of, if it is one."""
    _, separator, place = (value or b"").decode("latin-1").partition("@")
    if not separator:
        return None
    partition, _, offset = place.rpartition(":")
    topic, _, number = partition.rpartition("-")
    return Source(TopicPartition(topic, int(number)), int(offset))
