"""The group coordinator: members come, divide the work, beat their hearts, and go.

The group itself is a table (`group`); its memory is a log (`storage`). Members wait for each other
in a join and for the leader's division in a sync (`rebalances`), the coordinator for heartbeats
(`sessions`). One request is handled at a time, so nothing here needs a lock.
docs/spec/controller-and-replication.md section 7.

In a crash everything that waits is lost with the connections that asked; the next coordinator reads
stable groups back from the log and members rejoin. A rebalance under way starts over.
"""

import asyncio
import copy
import logging
import random
import uuid
from collections.abc import Callable, Mapping

from odradek.coordinator.config import GroupConfig
from odradek.coordinator.group import (
    UNKNOWN_MEMBER,
    Group,
    GroupState,
    Member,
    check_generation,
    new_member_id,
)
from odradek.coordinator.group_responses import (
    JoinReply,
    SyncReply,
    join_response,
    refusal,
    refused_join,
    sync_response,
)
from odradek.coordinator.offsets import GroupOffsets
from odradek.coordinator.rebalances import Rebalances
from odradek.coordinator.sessions import Sessions
from odradek.coordinator.state_topic import OwnedPartition, StateLog
from odradek.coordinator.storage import GroupStorage
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
)
from odradek.wire.messages.leave_group import MemberIdentity, MemberResponse
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.wire.reply import Reply

# How long a member that has just joined may take to come back, whatever its session time-out.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000
# The metadata of a member's protocols together. The group's record, which has the metadata of all
# members, must fit into a batch of the offsets topic, so more could never be stored.
METADATA_BYTES_MAX = 1024 * 1024
SKIP_ASSIGNMENT_SINCE = 9
MEMBER_ID_REQUIRED_SINCE = 4

logger = logging.getLogger(__name__)


class GroupCoordinator:
    """The groups this broker answers for."""

    def __init__(
        self,
        offsets_log: StateLog,
        config: GroupConfig,
        *,
        clock: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self.config = config
        self._clock = clock
        self._rng = rng
        self.storage = GroupStorage(offsets_log, clock)
        self.offsets = GroupOffsets(self.storage, config, clock, self.touch)
        self._sessions = Sessions(self._session_ended, self._remove_pending)
        self._rebalances = Rebalances(config, self.storage, self._sessions, clock)

    # Partitions of the offsets topic come and go with their leadership.

    def on_elected(self, partition: int, epoch: int) -> None:
        """This broker leads a partition of the offsets topic: load it, then answer for it."""
        self.storage.elected(partition, epoch, self._loaded)

    def _loaded(self, owned: OwnedPartition[Group]) -> None:
        for group in list(owned.entries.values()):
            for member in group.members.values():
                self.touch(group, member)
            if len(group.members) > self.config.group_max_size:
                self._rebalances.begin(group, "the group is over its maximal size")

    def on_resigned(self, partition: int, epoch: int | None = None) -> None:
        for group in self.storage.resigned(partition, epoch):
            self._dismiss(group)

    def close(self) -> None:
        self.storage.close()
        self.offsets.close()
        for partition in list(self.storage.owned):
            self.on_resigned(partition)

    def _dismiss(self, group: Group) -> None:
        """The group has another coordinator: members that wait are sent there."""
        group.transition(GroupState.DEAD, self._clock())
        self._rebalances.stop_waiting(group)
        for member in group.members.values():
            member.answer_join(JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))
            member.answer_sync(SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))
            self._sessions.end(member)
        for member_id in group.pending_members:
            self._sessions.stop_expecting(group, member_id)

    def check(self, group_id: str, allow_empty: bool = False) -> ErrorCode:
        """Whether a request about the group can be answered here, now."""
        if not group_id and not allow_empty:
            return ErrorCode.INVALID_GROUP_ID
        return self.storage.status(group_id)

    # Joining.

    def join(
        self, request: JoinGroupRequest, version: int, client_id: str, client_host: str
    ) -> JoinReply:
        error = self.check(request.group_id)
        if error:
            return refusal(request.member_id, error)
        config = self.config
        session_ms = request.session_timeout_ms
        if not (
            config.group_min_session_timeout_ms <= session_ms <= config.group_max_session_timeout_ms
        ):
            return refusal(request.member_id, ErrorCode.INVALID_SESSION_TIMEOUT)
        is_unknown = request.member_id == UNKNOWN_MEMBER
        group = self.storage.get(request.group_id)
        if group is None:
            if not is_unknown:
                return refusal(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            group = self.storage.add(request.group_id)
        if not self._has_room(group, request.member_id):
            self._rebalances.remove_member(group, request.member_id)
            self._rebalances.complete_join_if_all_are_here(group)
            return refusal(UNKNOWN_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)
        if sum(len(protocol.metadata) for protocol in request.protocols) > METADATA_BYTES_MAX:
            return refusal(request.member_id, ErrorCode.INVALID_REQUEST)
        names = [protocol.name for protocol in request.protocols]
        if not group.supports(request.protocol_type, names):
            return refusal(request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        member = Member(
            request.member_id,
            request.group_instance_id,
            client_id,
            client_host,
            request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else session_ms,
            session_ms,
            {protocol.name: bytes(protocol.metadata) for protocol in request.protocols},
        )
        if is_unknown:
            answer = self._join_unknown(group, member, request, version)
        else:
            answer = self._join_known(group, member, request)
        if group.state is GroupState.PREPARING_REBALANCE:
            self._rebalances.complete_join_if_all_are_here(group)
        return answer

    def _has_room(self, group: Group, member_id: str) -> bool:
        limit = self.config.group_max_size
        if group.state is GroupState.PREPARING_REBALANCE:
            # Those who do not come back make room, so only who is here counts.
            member = group.members.get(member_id)
            waiting = sum(m.joining is not None for m in group.members.values())
            return (member is not None and member.joining is not None) or waiting < limit
        if group.state in (GroupState.EMPTY, GroupState.DEAD):
            return True
        return member_id in group.members or len(group.members) < limit

    def _join_unknown(
        self, group: Group, member: Member, request: JoinGroupRequest, version: int
    ) -> JoinReply:
        member.id = new_member_id(member.instance_id or member.client_id, self._new_id())
        if member.instance_id is not None:
            if member.instance_id in group.instances:
                return self._join_instead(group, member, version >= SKIP_ASSIGNMENT_SINCE)
            return self._add(group, member, request.protocol_type)
        if version >= MEMBER_ID_REQUIRED_SINCE:
            # A client that never comes back must not leave a member behind: it gets its id first.
            group.pending_members.add(member.id)
            self._sessions.expect(group, member.id, member.session_timeout_ms)
            return refusal(member.id, ErrorCode.MEMBER_ID_REQUIRED)
        return self._add(group, member, request.protocol_type)

    def _join_known(self, group: Group, member: Member, request: JoinGroupRequest) -> JoinReply:
        if member.id in group.pending_members:
            if member.instance_id is not None:
                # Only who names no instance is given an id to come back with. Kafka's answer.
                return refusal(member.id, ErrorCode.UNKNOWN_SERVER_ERROR)
            self._sessions.stop_expecting(group, member.id)
            return self._add(group, member, request.protocol_type)
        error = group.check_member(member.id, member.instance_id)
        if error:
            return refusal(member.id, error)
        current = group.members[member.id]
        unchanged = current.same_protocols(member.protocols)
        if group.state is GroupState.COMPLETING_REBALANCE and unchanged:
            # The answer to its join was lost: give it again.
            return Reply.now(join_response(group, current))
        if group.state is GroupState.STABLE and unchanged and not group.is_leader(member.id):
            return Reply.now(join_response(group, current))
        if group.state in (GroupState.EMPTY, GroupState.DEAD):
            return refusal(member.id, ErrorCode.UNKNOWN_MEMBER_ID)
        waiting = self._update(current, member)
        self._rebalances.maybe_begin(group, f"member {member.id} rejoins")
        return Reply.exclusive(waiting)

    def _add(self, group: Group, member: Member, protocol_type: str) -> JoinReply:
        if not group.members:
            group.protocol_type = protocol_type
        member.is_new = True
        if group.state is GroupState.PREPARING_REBALANCE and group.generation == 0:
            group.member_arrived = True
        group.add(member)
        waiting = member.joining = asyncio.get_running_loop().create_future()
        self._sessions.extend(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalances.maybe_begin(group, f"member {member.id} joins")
        return Reply.exclusive(waiting)

    def _update(self, current: Member, member: Member) -> "asyncio.Future[JoinGroupResponse]":
        current.protocols = member.protocols
        current.rebalance_timeout_ms = member.rebalance_timeout_ms
        current.session_timeout_ms = member.session_timeout_ms
        if current.joining is None:
            current.joining = asyncio.get_running_loop().create_future()
        return current.joining

    def _join_instead(self, group: Group, member: Member, may_skip: bool) -> JoinReply:
        """A static member is back under a new id: it takes over, without a rebalance if it can."""
        assert member.instance_id is not None
        old_leader = group.leader
        current = group.members[group.instances[member.instance_id]]
        current.answer_join(refused_join(current.id, ErrorCode.FENCED_INSTANCE_ID))
        current.answer_sync(SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
        previous = copy.copy(current)
        group.replace_static(member.instance_id, member.id)
        waiting = self._update(current, member)
        self.touch(group, current)
        if group.state is GroupState.STABLE:
            if group.choose_protocol() == group.protocol:
                self._store_takeover(group, current, previous, old_leader, may_skip)
            else:
                self._rebalances.maybe_begin(group, f"{member.instance_id} changed its protocol")
        elif group.state is GroupState.COMPLETING_REBALANCE:
            self._rebalances.begin(group, f"{member.instance_id} took over")
        return Reply.exclusive(waiting)

    def _store_takeover(
        self,
        group: Group,
        member: Member,
        previous: Member,
        old_leader: str | None,
        may_skip: bool,
    ) -> None:
        """`previous` is the member as it was, and is again if the takeover cannot be stored: the
        twin has not joined, and must not fence a member that runs."""
        assignments = {m.id: m.assignment for m in group.members.values()}
        new_id = member.id

        def stored(error: ErrorCode) -> None:
            if member.joining is None or member.id != new_id:
                return
            if error:
                member.answer_join(refused_join(UNKNOWN_MEMBER, error))
                self._revert_takeover(group, member, previous)
                return
            answer = join_response(group, member)
            if may_skip:
                answer.skip_assignment = group.is_leader(member.id)
            else:
                # An older client that finds itself leader would assign partitions again; with the
                # previous leader's id in the response it only asks for its own assignment.
                answer.members = []
                answer.leader = old_leader or ""
            member.answer_join(answer)

        self.storage.write_group(group, assignments, stored)

    def _revert_takeover(self, group: Group, member: Member, previous: Member) -> None:
        assert member.instance_id is not None
        logger.warning(
            "group %s: the takeover of instance %s by member %s is reverted: it was not stored",
            group.id,
            member.instance_id,
            member.id,
        )
        group.replace_static(member.instance_id, previous.id)
        member.protocols = previous.protocols
        member.rebalance_timeout_ms = previous.rebalance_timeout_ms
        member.session_timeout_ms = previous.session_timeout_ms
        self.touch(group, member)

    # Syncing.

    def sync(self, request: SyncGroupRequest) -> SyncReply:
        error = self.check(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The rebalance it belongs to is lost: start over, here.
            error = ErrorCode.REBALANCE_IN_PROGRESS
        group = self.storage.get(request.group_id) if not error else None
        if not error:
            error = self._check_sync(group, request)
        if error:
            return Reply.now(SyncGroupResponse(error_code=error))
        assert group is not None
        member = group.members[request.member_id]
        self._rebalances.member_synced(group, member)
        if group.state is GroupState.STABLE:
            self.touch(group, member)
            return Reply.now(sync_response(group, member))
        if member.syncing is None:
            member.syncing = asyncio.get_running_loop().create_future()
        waiting = member.syncing
        if group.is_leader(member.id):
            given = {one.member_id: bytes(one.assignment) for one in request.assignments}
            self._take_assignments(group, {m: given.get(m, b"") for m in group.members})
        return Reply.exclusive(waiting)

    def _check_sync(self, group: Group | None, request: SyncGroupRequest) -> ErrorCode:
        error = check_generation(group, request)
        if error or group is None:
            return error
        if request.protocol_type is not None and request.protocol_type != group.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name is not None and request.protocol_name != group.protocol:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _take_assignments(self, group: Group, assignments: Mapping[str, bytes]) -> None:
        generation = group.generation

        def stored(error: ErrorCode) -> None:
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != generation:
                return
            if error:
                self._rebalances.reset_assignments(group, error)
                self._rebalances.maybe_begin(group, f"its division was not stored: {error.name}")
                return
            for member in group.members.values():
                member.assignment = assignments[member.id]
            group.transition(GroupState.STABLE, self._clock())
            for member in group.members.values():
                if member.syncing is not None:
                    member.answer_sync(sync_response(group, member))
                    self.touch(group, member)

        self.storage.write_group(group, assignments, stored)

    # Heartbeats and leaving.

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        error = self.check(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE
        group = self.storage.get(request.group_id) if not error else None
        error = error or check_generation(group, request)
        if error or group is None:
            return error
        self.touch(group, group.members[request.member_id])
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(
        self, group_id: str, leaving: list[MemberIdentity]
    ) -> tuple[ErrorCode, list[MemberResponse]]:
        error = self.check(group_id)
        if error:
            return error, []
        group = self.storage.get(group_id)
        return ErrorCode.NONE, [
            MemberResponse(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id,
                error_code=self._leave(group, one.member_id, one.group_instance_id),
            )
            for one in leaving
        ]

    def _leave(self, group: Group | None, member_id: str, instance_id: str | None) -> ErrorCode:
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_id == UNKNOWN_MEMBER:
            # An administrator removes a static member by its instance alone.
            member_id = group.instances.get(instance_id or "", UNKNOWN_MEMBER)
            instance_id = None
        elif member_id in group.pending_members:
            self._remove_pending(group, member_id)
            return ErrorCode.NONE
        error = group.check_member(member_id, instance_id)
        if not error:
            self._remove(group, member_id, "it left")
        return error

    def _remove(self, group: Group, member_id: str, reason: str) -> None:
        self._rebalances.remove_member(group, member_id)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._rebalances.maybe_begin(group, f"member {member_id} is out: {reason}")
        elif group.state is GroupState.PREPARING_REBALANCE:
            self._rebalances.complete_join_if_all_are_here(group)

    def touch(self, group: Group, member: Member) -> None:
        """A sign of life: restarts the member's session."""
        self._sessions.extend(group, member, member.session_timeout_ms)

    def _session_ended(self, group: Group, member: Member) -> None:
        self._remove(group, member.id, "its session ended")

    def _remove_pending(self, group: Group, member_id: str) -> None:
        self._sessions.stop_expecting(group, member_id)
        group.pending_members.discard(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            self._rebalances.complete_join_if_all_are_here(group)

    def _new_id(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    @property
    def rebalances(self) -> int:
        return self._rebalances.begun

    def statistics(self) -> dict[str, int]:
        groups = self.storage.entries()
        return {
            "groups": len(groups),
            "members": sum(len(group.members) for group in groups),
            "offsets": sum(len(group.offsets) for group in groups),
            "rebalances": self.rebalances,
            "partitions": len(self.storage.owned),
        }
