"""The invariants of transactions that are judged when everything has healed, from the logs.

A transaction's outcome is taken from the markers in the logs themselves, without the product's
indexes, which have been tried by the readers meanwhile. Those invariants that clients see as they
go (OnlyCommittedIsRead, CommittedIsReadWhole, LastStableOffsetNeverGoesBack, OneOwnerPerEpoch,
ZombiesAreFenced, PendingOffsetsInvisible) are in `transaction_evidence` and `workload`.
"""

from collections.abc import Iterator, Mapping, Sequence

from odradek.log.log import Log
from odradek.wire.records import ControlType, Record, decode_records, decode_transaction_end
from odradek.wire.topics import TopicPartition

from .checkers import Checker
from .observation import batches_of, leaders
from .transaction_evidence import Attempt, source_of
from .transactional_clients import DERIVED

Records = dict[TopicPartition, dict[int, Record]]


def committed_records(log: Log) -> Iterator[Record]:
    """The records of a log that are in no transaction or in a committed one."""
    undecided: dict[int, list[Record]] = {}
    for header, piece in batches_of(log, log.end_offset):
        if header.is_control:
            end = decode_transaction_end(piece, header)
            records = undecided.pop(header.producer_id, [])
            if end is not None and end.type is ControlType.COMMIT:
                yield from records
        elif header.is_transactional:
            undecided.setdefault(header.producer_id, []).extend(decode_records(piece, header))
        else:
            yield from decode_records(piece, header)


class TransactionsAreAtomic(Checker):
    """Of a committed transaction every record is in the logs, of an aborted one none; of one whose
    client was told nothing, all or none."""

    name = "TransactionsAreAtomic"

    def judge(self) -> None:
        if not self.history.transactions.attempts:
            return
        logs = leaders(self.world)
        committed: Records = {
            of: {record.offset: record for record in committed_records(partition.local_log)}
            for of, partition in logs.items()
            if self.history.protected(of)
        }
        found: dict[Attempt, int] = {}
        for records in committed.values():
            for record in records.values():
                attempt = self.history.transactions.attempt_of(record.value)
                if attempt is not None:
                    found[attempt] = found.get(attempt, 0) + 1
        for attempt in self.history.transactions.attempts.values():
            self._judge(attempt, committed, found.get(attempt, 0))

    def _judge(self, attempt: Attempt, committed: Records, found: int) -> None:
        if found and not attempt.may_be_read:
            self.violated(f"{attempt.name} was not committed, but {found} of its records are")
        missing = [
            f"{of} offset {offset}"
            for of, offsets in attempt.placed.items()
            for offset in offsets
            if of in committed and offset not in committed[of]
        ]
        if missing and (found or attempt.is_committed):
            self.violated(f"{attempt.name} is committed, but not in {', '.join(missing)}")


class CopiedExactlyOnce(Checker):
    """What movers have copied in transactions with their offsets is there once, and all of it."""

    name = "CopiedExactlyOnce"

    def judge(self) -> None:
        moved_until: Mapping[TopicPartition, int] = self.history.transactions.moved_until
        if not moved_until:
            return
        logs = leaders(self.world)
        copies: dict[TopicPartition, dict[int, int]] = {}
        for to, partition in logs.items():
            for record in committed_records(partition.local_log) if to.topic == DERIVED else ():
                source = source_of(record.value)
                if source is not None:
                    of_one = copies.setdefault(source.tp, {})
                    of_one[source.offset] = of_one.get(source.offset, 0) + 1
        for of, until in moved_until.items():
            found = copies.get(of, {})
            wanted = {
                record.offset
                for record in committed_records(logs[of].local_log)
                if record.offset < until
            }
            for offset in sorted(wanted | found.keys()):
                expected = int(offset in wanted)
                if found.get(offset, 0) != expected:
                    self.violated(
                        f"{of} offset {offset} was copied {found.get(offset, 0)} times, with "
                        f"{until} committed: {expected} is right"
                    )


TRANSACTION_CHECKERS: Sequence[type[Checker]] = (TransactionsAreAtomic, CopiedExactlyOnce)
