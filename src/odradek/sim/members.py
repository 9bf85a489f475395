"""Consumers in groups: they join, share partitions, read, commit, and compare the offsets returned.

The classic protocol, as docs/spec/controller-and-replication.md section 7 has it: JoinGroup until
the group is complete, SyncGroup with the leader's division, Heartbeat until it says to join again.
OffsetsNeverForgotten: a group's committed offset is never behind one whose commit was acknowledged
before the question was asked, unless a commit of unknown fate explains it. It holds because members
only ever go on from what is committed.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import TypeVar

from odradek.client.client import Client
from odradek.client.groups import Groups
from odradek.client.reader import LATEST, offsets_at
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from odradek.wire.schema import Request
from odradek.wire.topics import TopicPartition

from .history import History
from .world import World

# What a client may meet without anything being wrong with the cluster.
EXPECTED = (KafkaError, OSError, TimeoutError)

SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 15_000
HEARTBEAT_S = 2.0
PROTOCOL = "range"
TOPIC = "main"

R = TypeVar("R", HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse)


class MustJoinAgain(Exception):
    """The group has moved on without this member."""


class Member:
    """One member of one group, for as long as its process lives."""

    def __init__(
        self, world: World, history: History, client: Client, group: str, rng: random.Random
    ) -> None:
        self.world = world
        self.history = history
        self.client = client
        self.group = group
        self.rng = rng
        self.id = ""
        self.generation = -1
        self.pause: Callable[[], float] = lambda: 1.0
        self.is_stopping = False

    async def live(self, patience: float) -> None:
        """Join, work until the group changes, and so on."""
        until = self.world.loop.time() + patience
        try:
            while not self.is_stopping and self.world.loop.time() < until:
                assigned = await self.join()
                self.history.count("joined")
                try:
                    await self._work(assigned, until)
                except MustJoinAgain:
                    self.history.count("rebalanced")
        finally:
            if self.id and self.rng.random() < 0.7:
                await self._leave()

    async def join(self) -> list[TopicPartition]:
        """The partitions that fall to this member in the next generation."""
        while True:
            joined = await self._join()
            division = self._divide(joined) if joined.leader == joined.member_id else []
            request = SyncGroupRequest(
                group_id=self.group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                protocol_type="consumer",
                protocol_name=PROTOCOL,
                assignments=division,
            )
            synced = await self._ask(request)
            if not synced.error_code:
                self.generation = joined.generation_id
                return _partitions_of(synced.assignment)
            with contextlib.suppress(MustJoinAgain):
                self._check(synced.error_code)

    async def _join(self) -> JoinGroupResponse:
        subscription = ConsumerProtocolSubscription(topics=[TOPIC]).encode_versioned(0)
        while True:
            request = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                member_id=self.id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=subscription)],
            )
            joined = await self._ask(request)
            error = joined.error_code
            if not error:
                self.id = joined.member_id
                return joined
            if error == ErrorCode.MEMBER_ID_REQUIRED:
                self.id = joined.member_id
            elif error == ErrorCode.UNKNOWN_MEMBER_ID:
                self.id = ""
            else:
                raise KafkaError(ErrorCode(error), f"joining {self.group}")

    def _divide(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        count = len(self.world.ledger.topics[TOPIC].partitions)
        members = sorted(member.member_id for member in joined.members)
        return [
            SyncGroupRequestAssignment(
                member_id=member,
                assignment=ConsumerProtocolAssignment(
                    assigned_partitions=[
                        ConsumerProtocolAssignmentTopicPartition(
                            topic=TOPIC, partitions=list(range(index, count, len(members)))
                        )
                    ]
                ).encode_versioned(0),
            )
            for index, member in enumerate(members)
        ]

    async def _work(self, assigned: list[TopicPartition], until: float) -> None:
        """Go on from what is committed, to the end as the broker reports it, again and again."""
        positions = await check_committed(self.world, self.history, self.client, self.group)
        while not self.is_stopping and self.world.loop.time() < until:
            self._check((await self._ask(self._heartbeat())).error_code)
            if assigned:
                ends = await offsets_at(self.client, dict.fromkeys(assigned, LATEST))
                forward = {
                    of: self.rng.randint(positions.get(of, 0), ends[of].offset)
                    for of in assigned
                    if ends[of].offset >= positions.get(of, 0)
                }
                await self._commit(forward)
                positions.update(forward)
            await asyncio.sleep(self.pause() * HEARTBEAT_S * self.rng.uniform(0.3, 1.0))

    def _heartbeat(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.id
        )

    async def _commit(self, offsets: dict[TopicPartition, int]) -> None:
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.id,
            topics=[
                OffsetCommitRequestTopic(
                    name=of.topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=of.partition, committed_offset=offset
                        )
                    ],
                )
                for of, offset in offsets.items()
            ],
        )
        node = await self.client.coordinator(self.group)
        try:
            # Once only: a repetition that is overtaken would take the group back, and rightly so.
            response = await self.client.ask(node, request)
        except EXPECTED:
            for of, offset in offsets.items():
                self.history.doubtful.setdefault((self.group, of), set()).add(offset)
            raise
        for topic in response.topics:
            for part in topic.partitions:
                of = TopicPartition(topic.name, part.partition_index)
                if part.error_code:
                    self.history.doubtful.setdefault((self.group, of), set()).add(offsets[of])
                    self._check(part.error_code)
                else:
                    key = (self.group, of)
                    known = self.history.committed.get(key, -1)
                    self.history.committed[key] = max(known, offsets[of])
                    self.history.count("committed")

    async def _leave(self) -> None:
        request = LeaveGroupRequest(
            group_id=self.group, members=[MemberIdentity(member_id=self.id)]
        )
        await self._ask(request)

    async def _ask(self, request: Request[R]) -> R:
        return await self.client.ask_coordinator(
            self.group, request, lambda answer: answer.error_code
        )

    def _check(self, error: int) -> None:
        if not error:
            return
        if error == ErrorCode.UNKNOWN_MEMBER_ID:
            self.id = ""
        if error in (
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ):
            raise MustJoinAgain
        raise KafkaError(ErrorCode(error), f"in group {self.group}")


async def check_committed(
    world: World, history: History, client: Client, group: str
) -> dict[TopicPartition, int]:
    """What a group has committed; a violation if it is less than what was acknowledged."""
    before = {of: offset for (name, of), offset in history.committed.items() if name == group}
    found = {of: each.offset for of, each in (await Groups(client).offsets(group)).items()}
    for of, offset in before.items():
        if found.get(of, -1) >= offset:
            continue
        if found.get(of) in history.doubtful.get((group, of), ()):
            # A commit whose answer was lost has arrived late, after a later one.
            history.committed[group, of] = found[of]
        else:
            history.violated(
                "OffsetsNeverForgotten",
                world.loop.time(),
                f"group {group} had committed {offset} in {of}, and now {found.get(of)}",
            )
    return found


def _partitions_of(assignment: bytes) -> list[TopicPartition]:
    if not assignment:
        return []
    decoded = ConsumerProtocolAssignment.decode_versioned(assignment)
    return [
        TopicPartition(topic.topic, number)
        for topic in decoded.assigned_partitions
        for number in topic.partitions
    ]
