"""What clients saw: every acknowledgement, every read, every committed offset. The evidence."""

from dataclasses import dataclass, field

from odradek.wire.topics import TopicPartition

from .transaction_evidence import TransactionEvidence


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that did not hold: which, when in virtual time, and what was seen."""

    invariant: str
    at: float
    what: str

    def __str__(self) -> str:
        return f"{self.at:10.3f}  {self.invariant}: {self.what}"


@dataclass(slots=True)
class CleaningEvidence:
    """What the clients of a compacted topic and of a trimmed one know."""

    # The values that each key may have in the end: that of the last acknowledged record, and those
    # sent since of which the client heard nothing. None is a deletion.
    latest: dict[bytes, list[bytes | None]] = field(default_factory=dict)
    # Acknowledged by the trimmed topic: offset to value.
    placed: dict[int, bytes] = field(default_factory=dict)
    # Up to where records were to be deleted.
    delete_until: int = 0
    # Up to where they were old by the clock of some broker, which was ahead.
    expired_until: int = 0


@dataclass(slots=True)
class History:
    """One run's evidence, and what was found wrong with it."""

    # Acknowledged with acks=all: offset to value.
    acknowledged: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    last_acknowledged: dict[TopicPartition, int] = field(default_factory=dict)
    # Acknowledged as a duplicate, without its offset.
    somewhere: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    # The highest high watermark that any replica ever had.
    marks: dict[TopicPartition, int] = field(default_factory=dict)
    # The first record read at each offset.
    read: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    # The batches that were opened for that, by their first offset.
    batches: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    # The end of each log as last returned to a consumer, and the leader's epoch; and how far
    # transactions are decided, likewise.
    ends: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    stable_ends: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    # Values sent by idempotent producers, which may stand in a log once.
    idempotent: set[bytes] = field(default_factory=set)
    # The offsets each group has committed, and had acknowledged.
    committed: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    # Commits whose response was lost: they may have been done.
    doubtful: dict[tuple[str, TopicPartition], set[int]] = field(default_factory=dict)
    # No replica may lead these: the last in-sync replica knows that it lost records.
    refused: set[TopicPartition] = field(default_factory=set)
    # Topics that were deleted, or that an unclean election was allowed on: nothing is promised.
    unprotected: set[str] = field(default_factory=set)
    # How often topics were to be deleted; and the last time that it was done.
    deletions: dict[str, int] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)
    # What transactional clients saw.
    transactions: TransactionEvidence = field(init=False)
    # What the clients of topics that are compacted and trimmed know.
    cleaning: CleaningEvidence = field(default_factory=CleaningEvidence)
    violations: list[Violation] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    transitions: dict[str, int] = field(default_factory=dict)

    def count(self, what: str, by: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + by

    def transition(self, row: str) -> None:
        self.transitions[row] = self.transitions.get(row, 0) + 1

    def violated(self, invariant: str, at: float, what: str) -> None:
        # One finding is enough to fail; a flood of the same hides the first.
        if sum(known.invariant == invariant for known in self.violations) < 10:
            self.violations.append(Violation(invariant, at, what))

    def acknowledge(self, tp: TopicPartition, offset: int, value: bytes, at: float) -> None:
        self.count("acknowledged")
        if offset < 0:
            self.somewhere.setdefault(tp, []).append(value)
            return
        first = self.acknowledged.setdefault(tp, {}).setdefault(offset, value)
        if first != value and self.protected(tp):
            self.violated(
                "NoCommittedRecordLost",
                at,
                f"{tp} offset {offset} was acknowledged for {first!r}, and then for {value!r}",
            )
        self.last_acknowledged[tp] = max(offset, self.last_acknowledged.get(tp, -1))

    def waits_for_an_operator(self, tp: TopicPartition) -> bool:
        return tp in self.refused

    def protected(self, tp: TopicPartition) -> bool:
        return tp.topic not in self.unprotected
