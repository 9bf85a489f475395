"""A member of a consumer group: join, assign partitions, send heartbeats, commit, leave.

    async with GroupMember(client, "group", ["topic"]) as member:
        while True:
            partitions = await member.join()
            while not member.must_rejoin:
                ...read `partitions`, and `await member.commit(offsets)` now and then

Partitions are assigned by range, which every client supports: a group may be mixed. A member that
stops sending heartbeats, or does not rejoin when the group rebalances, loses its partitions.
docs/spec/controller-and-replication.md, section 7.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Self, TypeVar

from odradek.client.client import Client
from odradek.client.groups import commit_topics
from odradek.wire.errors import DecodeError, ErrorCode, KafkaError, error_code
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
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from odradek.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from odradek.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from odradek.wire.schema import Request
from odradek.wire.topics import TopicPartition, numbers_by_topic

GroupResponse = TypeVar(
    "GroupResponse", JoinGroupResponse, SyncGroupResponse, HeartbeatResponse, LeaveGroupResponse
)

PROTOCOL_TYPE = "consumer"
RANGE = "range"
SUBSCRIPTION_VERSION = 0
SESSION_TIMEOUT_MS = 10_000
# Three may be lost before the session is.
HEARTBEAT_S = SESSION_TIMEOUT_MS / 1000 / 4

# The group has rebalanced without this member; it must join again.
_REJOIN = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.MEMBER_ID_REQUIRED,
    }
)


class GroupMember:
    """One member. Use it as an async context manager, or leave."""

    def __init__(
        self,
        client: Client,
        group: str,
        topics: Iterable[str],
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self.client = client
        self.group = group
        self.topics = sorted(set(topics))
        self.session_timeout_ms = session_timeout_ms
        self.heartbeat_s = heartbeat_s
        self.member_id = ""
        self.generation = -1
        self.must_rejoin = True
        self._heart: asyncio.Task[None] | None = None
        self._joins = self._commits = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    async def join(self) -> list[TopicPartition]:
        """Enter the group, or a new generation of it; the partitions that are ours now."""
        self._stop_heart()
        while True:
            joined = await self._join()
            if not joined.error_code:
                synced = await self._sync(joined)
                if not synced.error_code:
                    break
                self._note_error(synced.error_code)
        self.must_rejoin = False
        self._joins += 1
        self._heart = asyncio.create_task(self._beat())
        return _partitions(synced.assignment)

    async def _join(self) -> JoinGroupResponse:
        subscription = ConsumerProtocolSubscription(topics=self.topics)
        # The coordinator must have given up on the others before we give up on it.
        rebalance_ms = int(self.client.timeout_s * 1000 / 2)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=RANGE, metadata=subscription.encode_versioned(SUBSCRIPTION_VERSION)
                )
            ],
        )
        response = await self._ask(request)
        self._note_error(response.error_code)
        if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = response.member_id
            self.generation = response.generation_id
        return response

    async def _sync(self, joined: JoinGroupResponse) -> SyncGroupResponse:
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == joined.member_id:
            subscriptions = {
                member.member_id: ConsumerProtocolSubscription.decode_versioned(
                    member.metadata
                ).topics
                for member in joined.members
            }
            shares = await self._share(subscriptions)
            assignments = [
                SyncGroupRequestAssignment(member_id=member, assignment=_encoded(share))
                for member, share in shares.items()
            ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        return await self._ask(request)

    async def _share(
        self, subscriptions: Mapping[str, Sequence[str]]
    ) -> dict[str, list[TopicPartition]]:
        wanted = {topic for topics in subscriptions.values() for topic in topics}
        metadata = await self.client.refresh(wanted)
        counts = {
            topic: len(metadata.topics[topic].partitions)
            for topic in wanted
            if topic in metadata.topics
        }
        return share_by_range(subscriptions, counts)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit our position. False if the group has rebalanced without us: then join again."""
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=commit_topics(offsets),
        )
        response = await self.client.ask_coordinator(self.group, request, _commit_error)
        self._commits += 1
        self._note_error(_commit_error(response))
        return not self.must_rejoin

    async def leave(self) -> None:
        """Give our partitions to the others at once."""
        self._stop_heart()
        if self.member_id:
            request = LeaveGroupRequest(
                group_id=self.group,
                members=[MemberIdentity(member_id=self.member_id)],
            )
            self.member_id = ""
            await self._ask(request)

    async def _beat(self) -> None:
        """Until the group wants us to join again, or the coordinator does not come back."""
        while not self.must_rejoin:
            await asyncio.sleep(self.heartbeat_s)
            request = HeartbeatRequest(
                group_id=self.group, generation_id=self.generation, member_id=self.member_id
            )
            try:
                self._note_error((await self._ask(request)).error_code)
            except (KafkaError, OSError, TimeoutError):
                self.must_rejoin = True  # join() then raises what is wrong

    def _stop_heart(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
            self._heart = None

    def _note_error(self, number: int) -> None:
        """Know when to join again; raise what joining does not make right."""
        error = error_code(number)
        if error in _REJOIN:
            self.must_rejoin = True
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
        elif error is not ErrorCode.NONE:
            raise KafkaError(error, f"group {self.group!r}")

    async def _ask(self, request: Request[GroupResponse]) -> GroupResponse:
        return await self.client.ask_coordinator(
            self.group, request, lambda answer: answer.error_code
        )

    def statistics(self) -> dict[str, int]:
        return {"generation": self.generation, "joins": self._joins, "commits": self._commits}


def share_by_range(
    subscriptions: Mapping[str, Sequence[str]], counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Each topic's partitions in a row to its members in order, the first of them getting more."""
    shares: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for topic, count in sorted(counts.items()):
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        each, more = divmod(count, len(members))
        start = 0
        for index, member in enumerate(members):
            end = start + each + (index < more)
            shares[member] += [TopicPartition(topic, part) for part in range(start, end)]
            start = end
    return shares


def _encoded(share: Sequence[TopicPartition]) -> bytes:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=parts)
            for name, parts in numbers_by_topic(share).items()
        ]
    )
    return assignment.encode_versioned(SUBSCRIPTION_VERSION)


def _partitions(encoded: bytes) -> list[TopicPartition]:
    """Ours, as the leader wrote it; nothing at all for a member that has none."""
    if not encoded:
        return []
    try:
        assignment = ConsumerProtocolAssignment.decode_versioned(encoded)
    except DecodeError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from None
    return [
        TopicPartition(topic.topic, partition)
        for topic in assignment.assigned_partitions
        for partition in topic.partitions
    ]


def _commit_error(response: OffsetCommitResponse) -> int:
    codes = (part.error_code for topic in response.topics for part in topic.partitions)
    return next((code for code in codes if code), ErrorCode.NONE)
