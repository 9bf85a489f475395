"""A consumer group: its members, its generation, and where it is in its life.

Rules
1. Only this module says which transition is legal; an illegal one is a bug and asserted.
2. Nothing here waits, writes or keeps time: who asks gets an answer or changes the group.

A group is EMPTY, gathers its members in PREPARING_REBALANCE, waits in COMPLETING_REBALANCE for the
one member that divides the work (the leader) to say how, and is then STABLE. DEAD is final.
docs/spec/controller-and-replication.md section 7.
"""

from asyncio import Future, TimerHandle
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum

from odradek.coordinator.state_topic import Appended
from odradek.wire.decoder import STRING_BYTES_MAX
from odradek.wire.errors import DecodeError, ErrorCode
from odradek.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupResponse
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.wire.topics import TopicPartition

UNKNOWN_MEMBER = ""


class GroupState(Enum):
    """Kafka's names, as the wire spells them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.STABLE, GroupState.COMPLETING_REBALANCE}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


class Member:
    """One consumer as the coordinator knows it. `protocols` in the order the member prefers."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline",
        "id",
        "instance_id",
        "is_new",
        "joining",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "syncing",
        "timer",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Mapping[str, bytes],
    ) -> None:
        self.id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = dict(protocols)
        self.assignment = b""
        self.is_new = False
        # Set by the coordinator: what answers the member's waiting request, and its session's end.
        self.joining: Future[JoinGroupResponse] | None = None
        self.syncing: Future[SyncGroupResponse] | None = None
        self.deadline = 0.0
        self.timer: TimerHandle | None = None

    def answer_join(self, answer: JoinGroupResponse) -> None:
        """Answer the JoinGroup that waits, if one does."""
        waiting, self.joining = self.joining, None
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def answer_sync(self, answer: SyncGroupResponse) -> None:
        """Answer the SyncGroup that waits, if one does."""
        waiting, self.syncing = self.syncing, None
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def metadata(self, protocol: str | None) -> bytes:
        return self.protocols.get(protocol, b"") if protocol is not None else b""

    def same_protocols(self, protocols: Mapping[str, bytes]) -> bool:
        return list(self.protocols.items()) == list(protocols.items())


class CommittedOffset:
    """An offset a group has committed, and where the commit stands in the offsets topic."""

    __slots__ = (
        "batch_offset",
        "commit_timestamp",
        "expire_timestamp",
        "leader_epoch",
        "metadata",
        "offset",
    )

    def __init__(
        self,
        offset: int,
        metadata: str,
        commit_timestamp: int,
        leader_epoch: int = -1,
        expire_timestamp: int = -1,
    ) -> None:
        self.offset = offset
        self.metadata = metadata
        self.commit_timestamp = commit_timestamp
        self.leader_epoch = leader_epoch
        self.expire_timestamp = expire_timestamp
        # Where its batch is in the offsets topic, once it is there: of two commits the later wins,
        # whenever their transactions end.
        self.batch_offset = -1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommittedOffset) and all(
            getattr(self, name) == getattr(other, name)
            for name in self.__slots__
            if name != "batch_offset"
        )

    def __repr__(self) -> str:
        return f"CommittedOffset({self.offset}, {self.metadata!r}, at={self.commit_timestamp})"


class Group:
    """The members and offsets of one group."""

    def __init__(self, group_id: str, state_timestamp: int) -> None:
        self.id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp = state_timestamp
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        self.pending_members: set[str] = set()  # were given an id, have not come back with it
        self.pending_sync: set[str] = set()  # have joined this generation, have not asked for work
        self.offsets: dict[TopicPartition, CommittedOffset] = {}
        # In the log, and not yet in `offsets`: what waits for its replicas, by what it waits with.
        self.committing: dict[Future[Appended], dict[TopicPartition, CommittedOffset]] = {}
        # Committed in transactions that are open, by producer id: visible if those commit.
        self.pending_offsets: dict[int, dict[TopicPartition, CommittedOffset]] = {}
        # Appends of the last of these that wait for their replicas.
        self.appending_pending: set[Future[Appended]] = set()
        # A group without a member in its first generation waits for stragglers.
        self.member_arrived = False

    def transition(self, target: GroupState, now_ms: int) -> None:
        assert self.state in VALID_PREVIOUS[target], f"{self.id}: {self.state} to {target}"
        self.state = target
        self.state_timestamp = now_ms

    def is_leader(self, member_id: str) -> bool:
        return self.leader == member_id

    def add(self, member: Member) -> None:
        if not self.members:
            # The first member's type is the group's until it is empty again.
            self.leader = None
        if member.instance_id is not None:
            assert member.instance_id not in self.instances
            self.instances[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id
        self.members[member.id] = member
        self.pending_members.discard(member.id)

    def remove(self, member_id: str) -> Member | None:
        self.pending_members.discard(member_id)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            self.instances.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace_static(self, instance_id: str, new_id: str) -> Member:
        """The instance came back under a new id: it takes the old one's place and work."""
        old_id = self.instances[instance_id]
        # Members keep their order, which the choice of a leader follows.
        self.members = {
            (new_id if key == old_id else key): member for key, member in self.members.items()
        }
        member = self.members[new_id]
        member.id = new_id
        self.instances[instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_sync:
            self.pending_sync.discard(old_id)
        return member

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether a request comes from whom it says."""
        if instance_id is not None:
            current = self.instances.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a new member has the group's type and a protocol that all others support."""
        protocols = set(protocols)
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and bool(protocols & self.common_protocols())

    def common_protocols(self) -> set[str]:
        sets = [set(member.protocols) for member in self.members.values()]
        return set.intersection(*sets) if sets else set()

    def choose_protocol(self) -> str:
        """Each member votes for the first it prefers among those all speak; most votes win."""
        common = self.common_protocols()
        assert common, f"{self.id}: members without a common protocol"
        votes = Counter(
            next(name for name in member.protocols if name in common)
            for member in self.members.values()
        )
        return max(votes, key=lambda name: votes[name])

    def everybody_joined(self) -> bool:
        return not self.pending_members and all(
            member.joining is not None for member in self.members.values()
        )

    def elect_joined_leader(self) -> bool:
        """A leader that did not rejoin gives way to one that did; False when none did."""
        if self.leader is not None and self.members[self.leader].joining is not None:
            return True
        joined = next((m.id for m in self.members.values() if m.joining is not None), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    def next_generation(self, now_ms: int) -> None:
        # It is a signed number of 32 bits on the wire and goes round, as Kafka's does.
        self.generation = (self.generation + 1 + 2**31) % 2**32 - 2**31
        self.pending_sync.clear()
        if self.members:
            self.protocol = self.choose_protocol()
            self.transition(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol = None
            self.leader = None
            self.transition(GroupState.EMPTY, now_ms)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def committing_partitions(self) -> set[TopicPartition]:
        return {tp for offsets in self.committing.values() for tp in offsets}

    def is_unstable(self, tp: TopicPartition) -> bool:
        """Whether a commit of this partition is under way, in a transaction or without one."""
        return any(tp in offsets for offsets in self.committing.values()) or any(
            tp in offsets for offsets in self.pending_offsets.values()
        )

    def take_offset(self, tp: TopicPartition, committed: CommittedOffset) -> None:
        """The commit counts, unless a later one does already."""
        present = self.offsets.get(tp)
        if present is None or present.batch_offset < committed.batch_offset:
            self.offsets[tp] = committed

    def forget_offset(self, tp: TopicPartition) -> None:
        """Also one that is being committed: its commit comes before this in the log."""
        self.offsets.pop(tp, None)
        for offsets in self.committing.values():
            offsets.pop(tp, None)
        self.drop_pending(tp)

    def drop_pending(self, tp: TopicPartition) -> None:
        for producer_id, offsets in list(self.pending_offsets.items()):
            offsets.pop(tp, None)
            if not offsets:
                del self.pending_offsets[producer_id]

    def subscribed(self, topic: str) -> bool:
        """Whether a member may be reading the topic: then its offset must stay."""
        if self.state is GroupState.EMPTY or self.state is GroupState.DEAD:
            return False
        if self.protocol_type != "consumer":
            return True
        topics = self.subscriptions()
        return topics is None or topic in topics

    def subscriptions(self) -> set[str] | None:
        """All topics the members subscribe to; None when one cannot be read."""
        topics: set[str] = set()
        for member in self.members.values():
            of_member = subscribed_topics(member.metadata(self.protocol))
            if of_member is None:
                return None
            topics |= of_member
        return topics


def new_member_id(name: str, unique: str) -> str:
    """Who the member says it is, cut if need be: the id goes to all others, and has to fit a string
    on the wire."""
    room_bytes = STRING_BYTES_MAX - len(f"-{unique}")
    return f"{name.encode()[:room_bytes].decode(errors='ignore')}-{unique}"


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """The topics in a consumer's own words; None when they are in no version we can read."""
    version = int.from_bytes(metadata[:2], "big", signed=True)
    if len(metadata) < 2 or version < 0:
        return None
    try:
        # Later versions only add fields behind the topics, so the oldest reads them all.
        return set(ConsumerProtocolSubscription.decode(metadata[2:], 0).topics)
    except DecodeError:
        return None


def check_generation(
    group: Group | None, request: SyncGroupRequest | HeartbeatRequest
) -> ErrorCode:
    """Whether the sender is a member of the group in its current generation."""
    if group is None or group.state is GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(request.member_id, request.group_instance_id)
    if not error and request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error
