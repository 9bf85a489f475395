"""Rebalances of groups: how long members are waited for, in a join and then in a sync.

A rebalance begins when a member comes, leaves or changes; it waits until all members have joined
again, at most for the longest of their rebalance time-outs, and then until all have synced. A
member that is late for either is out. The states are `group`'s; what waits is here.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from odradek.coordinator.config import GroupConfig
from odradek.coordinator.group import UNKNOWN_MEMBER, Group, GroupState, Member
from odradek.coordinator.group_responses import join_response, refused_join
from odradek.coordinator.sessions import Sessions
from odradek.coordinator.storage import GroupStorage
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.sync_group import SyncGroupResponse

__all__ = ["Rebalances"]

logger = logging.getLogger(__name__)


class JoinWait(NamedTuple):
    """What a group in PREPARING_REBALANCE waits for: a time, or sooner that all are here."""

    timer: asyncio.TimerHandle
    ends_early: bool


class Rebalances:
    """The rebalances under way, and the timers that end them."""

    def __init__(
        self,
        config: GroupConfig,
        storage: GroupStorage,
        sessions: Sessions,
        clock: Callable[[], int],
    ) -> None:
        self._config = config
        self._storage = storage
        self._sessions = sessions
        self._clock = clock
        self._joins: dict[str, JoinWait] = {}
        self._sync_timers: dict[str, asyncio.TimerHandle] = {}
        self.begun = 0

    def maybe_begin(self, group: Group, reason: str) -> None:
        if group.state in (GroupState.EMPTY, GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.begin(group, reason)

    def begin(self, group: Group, reason: str) -> None:
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS)
        self.stop_waiting(group)
        group.pending_sync.clear()
        first = group.state is GroupState.EMPTY
        group.transition(GroupState.PREPARING_REBALANCE, self._clock())
        self.begun += 1
        logger.info("group %s generation %d rebalances: %s", group.id, group.generation, reason)
        if first:
            delay = self._config.group_initial_rebalance_delay_ms
            group.member_arrived = False
            self._wait_for_stragglers(group, delay, max(group.rebalance_timeout_ms - delay, 0))
        else:
            self._wait_for_join(group)
            self.complete_join_if_all_are_here(group)

    def _wait_for_stragglers(self, group: Group, delay_ms: int, rest_ms: int) -> None:
        """An empty group waits a little for more than the first, and again while they come."""

        def later() -> None:
            if group.member_arrived and rest_ms > 0:
                group.member_arrived = False
                step = min(self._config.group_initial_rebalance_delay_ms, rest_ms)
                self._wait_for_stragglers(group, step, max(rest_ms - delay_ms, 0))
            else:
                self._complete_join(group)

        loop = asyncio.get_running_loop()
        timer = loop.call_later(delay_ms / 1000, later)
        self._joins[group.id] = JoinWait(timer, ends_early=False)

    def _wait_for_join(self, group: Group, ms_min: int = 0) -> None:
        loop = asyncio.get_running_loop()
        wait_s = max(group.rebalance_timeout_ms, ms_min) / 1000
        timer = loop.call_later(wait_s, self._complete_join, group)
        self._joins[group.id] = JoinWait(timer, ends_early=True)

    def complete_join_if_all_are_here(self, group: Group) -> None:
        wait = self._joins.get(group.id)
        if wait is not None and wait.ends_early and group.everybody_joined():
            self._complete_join(group)

    def _complete_join(self, group: Group) -> None:
        """Time is up or all are here: who is absent is out, the others get a new generation."""
        wait = self._joins.pop(group.id, None)
        if wait is not None:
            wait.timer.cancel()
        for member in list(group.members.values()):
            if member.joining is None and member.instance_id is None:
                self.remove_member(group, member.id)
        if group.members and not group.elect_joined_leader():
            # Only static members are left and none came: they keep their places a while longer.
            self._wait_for_join(group, ms_min=1000)
            return
        group.next_generation(self._clock())
        if not group.members:
            self._storage.write_group(group, {}, lambda error: None)
            return
        for member in group.members.values():
            group.pending_sync.add(member.id)
            member.answer_join(join_response(group, member))
            self._sessions.extend(group, member, member.session_timeout_ms)
            member.is_new = False
        loop = asyncio.get_running_loop()
        self._sync_timers[group.id] = loop.call_later(
            group.rebalance_timeout_ms / 1000, self._expire_sync, group, group.generation
        )

    def _expire_sync(self, group: Group, generation: int) -> None:
        """Members that joined and never asked for their part are out."""
        del self._sync_timers[group.id]
        assert group.generation == generation
        if not group.pending_sync:
            return
        late = sorted(group.pending_sync)
        for member_id in late:
            self.remove_member(group, member_id)
        self.begin(group, f"{', '.join(late)} did not sync")

    def stop_waiting(self, group: Group) -> None:
        wait = self._joins.pop(group.id, None)
        if wait is not None:
            wait.timer.cancel()
        timer = self._sync_timers.pop(group.id, None)
        if timer is not None:
            timer.cancel()

    def reset_assignments(self, group: Group, error: ErrorCode) -> None:
        for member in group.members.values():
            member.assignment = b""
            member.answer_sync(SyncGroupResponse(error_code=error))

    def member_synced(self, group: Group, member: Member) -> None:
        """Of a member that has asked for its part; the last one ends the wait for the others."""
        group.pending_sync.discard(member.id)
        if not group.pending_sync and (timer := self._sync_timers.pop(group.id, None)):
            timer.cancel()

    def remove_member(self, group: Group, member_id: str) -> None:
        """The member is out; requests of it that wait are refused."""
        self._sessions.stop_expecting(group, member_id)
        member = group.remove(member_id)
        if member is None:
            return
        self._sessions.end(member)
        member.answer_join(refused_join(UNKNOWN_MEMBER, ErrorCode.UNKNOWN_MEMBER_ID))
        member.answer_sync(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
