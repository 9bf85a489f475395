"""How far consumer groups are behind, in records and in time, and when they will have caught up.

docs/spec/console.md sections 2 and 4. Groups that are looked at are read every other second, all
others in turn, each within a minute, and never more than 16 questions at a time; a page that waits
for a group has 16 of its own, since thousands may be queued. They are read sixteen by sixteen: the
answers of hundreds would come at once and hold up the loop. The commits of a group come from its
coordinator, the ends of logs from their leaders.

Lag in time is the age of the first record that the group has not read. That record's timestamp is
read from the log once for each commit, and remembered while the commit does not move.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest

from odradek.client.reader import LATEST
from odradek.console.collector import Collector
from odradek.console.link import FAILURES, Link
from odradek.console.partition_offsets import PartitionOffsets
from odradek.operations.first_unread import first_unread_ms
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.wire.messages.offset_fetch import OffsetFetchRequest
from odradek.wire.topics import TopicPartition

TICK_S = 2.0
LIST_S = 5.0
ALL_WITHIN_S = 50.0
VISIBLE_S = 10.0
AT_ONCE = 16
# Groups that are read together, and how long others have the loop before the next.
READ_TOGETHER = 16
PAUSE_S = 0.005
# For the slope: as far back as it looks, and the least it needs.
SLOPE_S, SLOPE_MIN_S = 120.0, 4.0
# Partitions of one group whose first unread record is looked at: those with the largest lag.
TIMED_PARTITIONS = 32
TIMED_UNSEEN = 1
REQUEST_TIMEOUT_S = 10.0


@dataclass(slots=True)
class GroupLag:
    """One group as it was last read."""

    id: str
    protocol_type: str = ""
    state: str = ""
    coordinator: int = -1
    members: int | None = None
    commits: PartitionOffsets = field(default_factory=PartitionOffsets)
    ends: PartitionOffsets = field(default_factory=PartitionOffsets)
    # The timestamps of the first records that were not read, as far as they are known, and when
    # the lag in time was taken from them.
    unread_ms: PartitionOffsets = field(default_factory=PartitionOffsets)
    timed_ms: int = 0
    read_s: float | None = None
    history: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=64))
    # The sum of the lags, and the largest of them: lists of thousands of groups show them and are
    # sorted by them. First, what they were made from.
    _summary: tuple[object, object, int, tuple[TopicPartition, int] | None] = (None, None, 0, None)

    @property
    def lag(self) -> int | None:
        return None if self.read_s is None else self._summed()[0]

    def _summed(self) -> tuple[int, tuple[TopicPartition, int] | None]:
        if self._summary[0] is not self.ends or self._summary[1] is not self.commits:
            total, largest, where = 0, 0, None
            for topic in self.commits.topics:
                pairs = zip(self.commits.column(topic), self.ends.column(topic), strict=False)
                for p, (commit, end) in enumerate(pairs):
                    lag = end - commit
                    if lag > 0 and commit >= 0:
                        total += lag
                        if lag > largest:
                            largest, where = lag, TopicPartition(topic, p)
            slowest = None if where is None else (where, largest)
            self._summary = self.ends, self.commits, total, slowest
        return self._summary[2:]

    def lags(self) -> dict[TopicPartition, int]:
        return {
            tp: max(0, self.ends[tp] - offset)
            for tp, offset in self.commits.items()
            if tp in self.ends
        }

    @property
    def behind_s(self) -> float | None:
        if self.lag == 0:
            return 0.0
        oldest_ms = min(self.unread_ms.values(), default=None)
        return None if oldest_ms is None else self._age_s(oldest_ms)

    def lag_s(self, tp: TopicPartition) -> float | None:
        time_ms = self.unread_ms.get(tp)
        return None if time_ms is None else self._age_s(time_ms)

    def _age_s(self, time_ms: int) -> float:
        return max(0.0, (self.timed_ms - time_ms) / 1000)

    def slope(self) -> float | None:
        """Records per second by which the lag grows; negative if it shrinks."""
        if len(self.history) < 2:
            return None
        (then_s, then), (now_s, now) = self.history[0], self.history[-1]
        return None if now_s - then_s < SLOPE_MIN_S else (now - then) / (now_s - then_s)

    def left_s(self) -> float | None:
        """None for never, at this rate."""
        lag, slope = self.lag, self.slope()
        if lag == 0:
            return 0.0
        if lag is None or slope is None or slope >= 0:
            return None
        return lag / -slope

    def slowest(self) -> tuple[TopicPartition, float] | None:
        """The partition with the largest lag, and its share of the sum."""
        total, slowest = self._summed()
        return None if slowest is None else (slowest[0], slowest[1] / total)


class GroupLags:
    """All groups, read in turn."""

    def __init__(self, link: Link, collector: Collector) -> None:
        self._link = link
        self._collector = collector
        self.groups: dict[str, GroupLag] = {}
        self.version = 0
        self._visible: dict[str, float] = {}
        # By topic; None if a group has begun or ceased to commit somewhere since it was made.
        self._by_topic: dict[str, list[str]] | None = None
        self._listed_s = -LIST_S
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[list[str]], None]] = []
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._turns_of_pages = asyncio.Semaphore(AT_ONCE)

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._forever())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def listen(self, listener: Callable[[list[str]], None]) -> None:
        """Called with the groups that were read."""
        self._listeners.append(listener)

    def look_at(self, ids: Iterable[str]) -> None:
        """These are on a screen: read them every other second for a while."""
        now = _now()
        for id in ids:
            self._visible[id] = now
        stale = [
            id
            for id in self._visible
            if id in self.groups and (self.groups[id].read_s or 0) < now - TICK_S
        ]
        if stale:
            self._wake.set()

    def of_topic(self, topic: str) -> list[str]:
        """The groups that have committed in a topic."""
        if self._by_topic is None:
            self._by_topic = {}
            for group in self.groups.values():
                for each in group.commits.topics:
                    self._by_topic.setdefault(each, []).append(group.id)
        return self._by_topic.get(topic, [])

    async def _forever(self) -> None:
        # Ends are asked for where the picture says that the leaders are.
        await self._collector.changed.wait()
        while True:
            try:
                await self.read_some()
            except FAILURES:
                pass  # the picture says already that the cluster does not answer
            try:
                async with asyncio.timeout(TICK_S):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    async def read_some(self) -> None:
        """Those on a screen, and a share of the others."""
        now = _now()
        if now - self._listed_s >= LIST_S:
            await self.read_list()
            self._listed_s = now
        for id in [id for id, seen in self._visible.items() if now - seen > VISIBLE_S]:
            del self._visible[id]
        due = self._due(now)
        for at in range(0, len(due), READ_TOGETHER):
            await self.read(due[at : at + READ_TOGETHER])
            await asyncio.sleep(PAUSE_S)

    def _due(self, now: float) -> list[str]:
        visible = [
            id
            for id in self._visible
            if id in self.groups and now - (self.groups[id].read_s or -TICK_S) >= TICK_S * 0.75
        ]
        share = max(8, int(len(self.groups) * TICK_S / ALL_WITHIN_S) + 1)
        others = nsmallest(
            share,
            (group for group in self.groups.values() if group.id not in self._visible),
            key=lambda group: -1.0 if group.read_s is None else group.read_s,
        )
        turn = [
            group.id for group in others if group.read_s is None or now - group.read_s >= TICK_S
        ]
        return visible + turn

    async def read_list(self) -> None:
        """The groups there are."""
        listed = {group.id: group for group in await self._link.api.groups.list_groups()}
        changed = False
        for id in [id for id in self.groups if id not in listed]:
            del self.groups[id]
            self._by_topic = None
            changed = True
        for id, group in listed.items():
            known = self.groups.get(id)
            if known is None:
                known = self.groups[id] = GroupLag(id)
                changed = True
            known.protocol_type = group.protocol_type
            known.state = group.state or known.state
            known.coordinator = group.coordinator
        if changed:
            self._notify([])

    async def read_for_page(self, id: str) -> None:
        """A group that is waited for. The time of its slowest partition is what a page waits
        for; those of the others are read in the next turn, since the group is on a screen."""
        await self.read([id], self._turns_of_pages, TIMED_UNSEEN)

    async def read(
        self, ids: list[str], turns: asyncio.Semaphore | None = None, timed: int | None = None
    ) -> None:
        """Commits, members, ends and times of these groups: of `timed` partitions each, if given,
        else of as many as it is worth."""
        turns = turns or self._turns
        groups = [self.groups[id] for id in ids if id in self.groups]
        await asyncio.gather(
            self._describe(groups, turns), *(self._read_commits(group, turns) for group in groups)
        )
        wanted = {tp for group in groups for tp in group.commits}
        ends = await self.read_ends(wanted, turns=turns)
        now = _now()
        for group in groups:
            group.ends = PartitionOffsets((tp, ends[tp]) for tp in group.commits if tp in ends)
            group.read_s = now
            # A sum that lacks a partition is no point of a slope.
            if all(tp in ends or self._is_gone(tp) for tp in group.commits):
                group.history.append((now, group.lag or 0))
            while len(group.history) > 2 and now - group.history[0][0] > SLOPE_S:
                group.history.popleft()
        await asyncio.gather(*(self._read_times(group, turns, timed) for group in groups))
        self._notify([group.id for group in groups])

    def _is_gone(self, tp: TopicPartition) -> bool:
        """Whether a commit is in a topic that was deleted since."""
        return self._collector.table.find(tp.topic) is None

    def _notify(self, ids: list[str]) -> None:
        self.version += 1
        for listener in self._listeners:
            listener(ids)

    async def _describe(self, groups: list[GroupLag], turns: asyncio.Semaphore) -> None:
        by_coordinator: dict[int, list[GroupLag]] = {}
        for group in groups:
            by_coordinator.setdefault(group.coordinator, []).append(group)

        async def ask(coordinator: int, some: list[GroupLag]) -> None:
            ids = [group.id for group in some]
            try:
                async with turns:
                    response = await self._link.client.ask(
                        coordinator, DescribeGroupsRequest(groups=ids)
                    )
            except FAILURES:
                return
            for described in response.groups:
                known = self.groups.get(described.group_id)
                if known is not None and not described.error_code:
                    known.members = len(described.members)
                    known.state = described.group_state

        await asyncio.gather(*(ask(node, some) for node, some in by_coordinator.items()))

    async def _read_commits(self, group: GroupLag, turns: asyncio.Semaphore) -> None:
        request = OffsetFetchRequest(group_id=group.id, topics=None)
        try:
            async with turns:
                response = await self._link.client.ask(
                    group.coordinator, request, timeout=REQUEST_TIMEOUT_S
                )
        except FAILURES:
            return
        if response.error_code:
            self._listed_s = -LIST_S  # its coordinator has moved: list again
            return
        commits = PartitionOffsets(
            (TopicPartition(topic.name, part.partition_index), part.committed_offset)
            for topic in response.topics
            for part in topic.partitions
            if not part.error_code
        )
        group.unread_ms = PartitionOffsets(
            (tp, time_ms)
            for tp, time_ms in group.unread_ms.items()
            if commits.get(tp) == group.commits.get(tp)
        )
        if commits.topics != group.commits.topics:
            self._by_topic = None
        group.commits = commits

    async def read_ends(
        self,
        tps: Iterable[TopicPartition],
        timestamp: int = LATEST,
        turns: asyncio.Semaphore | None = None,
    ) -> dict[TopicPartition, int]:
        """The ends of logs, from the leaders that the picture shows. Those that do not answer are
        left out: one leader that is gone must not hide the lag everywhere else."""
        turns = turns or self._turns_of_pages
        by_leader: dict[int, dict[str, list[int]]] = {}
        nodes = self._collector.brokers.nodes
        for tp in tps:
            leader = self._collector.table.leader(*tp)
            if leader in nodes:
                by_leader.setdefault(leader, {}).setdefault(tp.topic, []).append(tp.partition)
        found: dict[TopicPartition, int] = {}

        async def ask(leader: int, topics: Mapping[str, list[int]]) -> None:
            request = ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    ListOffsetsTopic(
                        name=name,
                        partitions=[
                            ListOffsetsPartition(partition_index=p, timestamp=timestamp)
                            for p in partitions
                        ],
                    )
                    for name, partitions in topics.items()
                ],
            )
            try:
                async with turns:
                    response = await self._link.client.ask(
                        leader, request, timeout=REQUEST_TIMEOUT_S
                    )
            except FAILURES:
                return
            for topic in response.topics:
                for part in topic.partitions:
                    if not part.error_code:
                        found[TopicPartition(topic.name, part.partition_index)] = part.offset

        await asyncio.gather(*(ask(leader, topics) for leader, topics in by_leader.items()))
        return found

    async def _read_times(
        self, group: GroupLag, turns: asyncio.Semaphore, timed: int | None
    ) -> None:
        """Of partitions whose commit has not moved the time is known. Of the others some are asked
        for, the largest lag first: many if the group is on a screen, else one."""
        lags = {tp: lag for tp, lag in group.lags().items() if lag}
        unknown = [tp for tp in lags if tp not in group.unread_ms]
        if timed is None:
            timed = TIMED_PARTITIONS if group.id in self._visible else TIMED_UNSEEN
        chosen = sorted(unknown, key=lags.__getitem__, reverse=True)[:timed]
        commits = {tp: group.commits[tp] for tp in chosen}
        found = await asyncio.gather(*(self._time_of(*commit, turns) for commit in commits.items()))
        times = {tp: time_ms for tp, time_ms in group.unread_ms.items() if tp in lags}
        times |= {
            tp: time_ms
            for tp, time_ms in zip(chosen, found, strict=True)
            if time_ms is not None and group.commits.get(tp) == commits[tp]
        }
        group.unread_ms = PartitionOffsets(times.items())
        group.timed_ms = self._collector.wall_ms()

    async def _time_of(
        self, tp: TopicPartition, offset: int, turns: asyncio.Semaphore
    ) -> int | None:
        """The timestamp of the record at an offset, or of the next one there is."""
        leader = self._collector.table.leader(*tp)
        if leader not in self._collector.brokers.nodes:
            return None
        async with turns:
            return await first_unread_ms(self._link.client, leader, tp, offset)


def _now() -> float:
    return asyncio.get_running_loop().time()
