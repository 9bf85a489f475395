"""A cluster as it was at a moment that the journal covers.

docs/spec/console.md section 4, "Time bar". Replicas are as they are now: the journal has leaders
and ISRs. Before its oldest entry nothing is known, and everything says so.
"""

from odradek.console.picture import PartitionState, PartitionTable
from odradek.operations.journal_book import JournalBook
from odradek.wire.topics import TopicPartition


class PastView:
    """Partitions, brokers and controller at one moment."""

    def __init__(self, book: JournalBook, table: PartitionTable, at_ms: int) -> None:
        self.at_ms = at_ms
        self.is_known = book.covers(at_ms)
        self._book = book
        self._table = table
        self._before = book.leaderships_at(at_ms) if self.is_known else {}

    def partition(self, now: PartitionState) -> PartitionState | None:
        """None if it is not known, or did not exist yet."""
        if not self.is_known:
            return None
        tp = TopicPartition(now.topic, now.p)
        if tp not in self._before:
            return now
        before = self._before[tp]
        if before is None:
            return None
        return now._replace(leader=before.leader, leader_epoch=before.leader_epoch, isr=before.isr)

    def word(self, now: PartitionState) -> str:
        if not self.is_known:
            return "not known"
        state = self.partition(now)
        if state is None:
            return "did not exist"
        if state.leader < 0:
            return "offline"
        return "ok" if len(state.isr) >= len(state.replicas) else "under-replicated"

    def brokers(self) -> list[int] | None:
        return self._book.brokers_at(self.at_ms) if self.is_known else None

    def controller(self) -> tuple[int, int] | None:
        return self._book.controller_at(self.at_ms) if self.is_known else None

    def counts(self) -> tuple[int, int, int]:
        """Partitions that existed, and of them those offline and under-replicated."""
        existed = offline = under = 0
        for topic in range(len(self._table.names)):
            for now in self._table.partitions(topic):
                word = self.word(now)
                existed += word not in ("did not exist", "not known")
                offline += word == "offline"
                under += word == "under-replicated"
        return existed, offline, under
