"""Consumer groups from outside: list, describe, offsets and lag, reset, delete."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.client.client import Client
from odradek.client.reader import LATEST, offsets_at
from odradek.client.values import Outcome, outcome
from odradek.wire.errors import DecodeError, ErrorCode, KafkaError
from odradek.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.describe_groups import (
    DescribedGroupMember,
    DescribeGroupsRequest,
)
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from odradek.wire.topics import TopicPartition, group_by_topic, numbers_by_topic

DEAD = "Dead"
CONSUMER_PROTOCOL = "consumer"


class Group(NamedTuple):
    """A group in a listing; older brokers do not report its state."""

    id: str
    protocol_type: str
    state: str
    coordinator: int


class Member(NamedTuple):
    """A member of a group, and the partitions it has."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartition]


class GroupDescription(NamedTuple):
    """A group and its members."""

    id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: list[Member]


class Committed(NamedTuple):
    """How far a group has come in a partition."""

    offset: int
    leader_epoch: int
    metadata: str


class Lag(NamedTuple):
    """How far a group is behind the end of a partition."""

    committed: int
    end: int

    @property
    def records(self) -> int:
        return max(0, self.end - self.committed)


class Groups:
    """Calls about consumer groups on a client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def list_groups(self, brokers: Iterable[int] | None = None) -> list[Group]:
        """Every group, asked from every broker, or those that these coordinate. Raises if one
        cannot answer."""
        found = await self.client.ask_every_broker(
            ListGroupsRequest(), lambda answer: answer.error_code, "groups", brokers
        )
        return sorted(
            Group(group.group_id, group.protocol_type, group.group_state, node)
            for node, response in found.items()
            for group in response.groups
        )

    async def describe_group(self, group: str) -> GroupDescription:
        """One group; GROUP_ID_NOT_FOUND if it does not exist."""
        response = await self.client.ask_coordinator(
            group, DescribeGroupsRequest(groups=[group]), lambda answer: answer.groups[0].error_code
        )
        described = response.groups[0]
        _check(described.error_code, f"group {group!r}")
        if described.group_state == DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group!r} does not exist")
        return GroupDescription(
            group,
            described.group_state,
            described.protocol_type,
            described.protocol_data,
            await self.client.coordinator(group),
            [
                Member(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    _assigned(described.protocol_type, member),
                )
                for member in described.members
            ],
        )

    async def offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, Committed]:
        """What a group has committed, of these partitions or of all; without those it has not.

        `require_stable` waits for transactions that are about to commit some."""
        topics = None
        if partitions is not None:
            topics = [
                OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                for name, indexes in numbers_by_topic(partitions).items()
            ]
        response = await self.client.ask_coordinator(
            group,
            OffsetFetchRequest(group_id=group, topics=topics, require_stable=require_stable),
            _fetch_error,
        )
        _check(_fetch_error(response), f"offsets of group {group!r}")
        return {
            TopicPartition(topic.name, part.partition_index): Committed(
                part.committed_offset, part.committed_leader_epoch, part.metadata or ""
            )
            for topic in response.topics
            for part in topic.partitions
            if part.committed_offset >= 0
        }

    async def lag(self, group: str, *, led_only: bool = False) -> dict[TopicPartition, Lag]:
        """How far a group is behind in each partition it has committed; topics that were deleted
        since are left out. One without a leader is waited for, or with `led_only` left out, too."""
        committed = await self.offsets(group)
        metadata = await self.client.refresh({partition.topic for partition in committed})
        known = [
            part
            for part in sorted(committed)
            if part.topic in metadata.topics
            and (found := metadata.topics[part.topic].partitions.get(part.partition)) is not None
            and (found.leader in metadata.nodes or not led_only)
        ]
        ends = await offsets_at(self.client, dict.fromkeys(known, LATEST))
        return {part: Lag(committed[part].offset, ends[part].offset) for part in known}

    async def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = ""
    ) -> dict[TopicPartition, Outcome]:
        """Set what a group without members has committed: how a reset is carried out."""
        request = OffsetCommitRequest(group_id=group, topics=commit_topics(offsets, metadata))
        response = await self.client.ask_coordinator(group, request, _first_error)
        return {
            TopicPartition(topic.name, part.partition_index): outcome(
                part.error_code, None, f"{topic.name}-{part.partition_index} of group {group!r}"
            )
            for topic in response.topics
            for part in topic.partitions
        }

    async def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Outcome]:
        """Forget what a group has committed in partitions that it does not read any more."""
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[OffsetDeleteRequestPartition(partition_index=i) for i in indexes],
                )
                for name, indexes in numbers_by_topic(partitions).items()
            ],
        )
        response = await self.client.ask_coordinator(
            group, request, lambda answer: answer.error_code
        )
        _check(response.error_code, f"group {group!r}")
        return {
            TopicPartition(topic.name, part.partition_index): outcome(
                part.error_code, None, f"{topic.name}-{part.partition_index} of group {group!r}"
            )
            for topic in response.topics
            for part in topic.partitions
        }

    async def delete_groups(self, groups: Iterable[str]) -> dict[str, Outcome]:
        """Delete groups that have no members."""
        results: dict[str, Outcome] = {}
        for group in groups:
            response = await self.client.ask_coordinator(
                group,
                DeleteGroupsRequest(groups_names=[group]),
                lambda answer: answer.results[0].error_code,
            )
            number = response.results[0].error_code
            missing = number == ErrorCode.GROUP_ID_NOT_FOUND
            about = f"group {group!r} does not exist" if missing else f"group {group!r}"
            results[group] = outcome(number, None, about)
        return results


def commit_topics(
    offsets: Mapping[TopicPartition, int], metadata: str = ""
) -> list[OffsetCommitRequestTopic]:
    """Offsets as OffsetCommit has them, with a note beside each."""
    topics = group_by_topic(
        (
            tp,
            OffsetCommitRequestPartition(
                partition_index=tp.partition, committed_offset=offset, committed_metadata=metadata
            ),
        )
        for tp, offset in offsets.items()
    )
    return [OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()]


def _check(number: int, about: str) -> None:
    if (error := outcome(number, None, about)) is not None:
        raise error


def _first_error(
    answer: OffsetCommitResponse | OffsetDeleteResponse | OffsetFetchResponse,
) -> int:
    """The first error among the partitions of an answer, since a coordinator that has moved or is
    loading says so for each."""
    codes = (part.error_code for topic in answer.topics for part in topic.partitions)
    return next((code for code in codes if code), ErrorCode.NONE)


def _fetch_error(answer: OffsetFetchResponse) -> int:
    return answer.error_code or _first_error(answer)


def _assigned(protocol_type: str, member: DescribedGroupMember) -> list[TopicPartition]:
    """The partitions of a consumer; other protocols keep other things there."""
    if protocol_type != CONSUMER_PROTOCOL or not member.member_assignment:
        return []
    try:
        assignment = ConsumerProtocolAssignment.decode_versioned(member.member_assignment)
    except DecodeError:
        return []
    return [
        TopicPartition(topic.topic, partition)
        for topic in assignment.assigned_partitions
        for partition in topic.partitions
    ]
