"""Members' sessions: a member that has sent no heartbeat for too long is removed.

A heartbeat only moves a deadline. The timer that is set already finds the later deadline when it
fires and waits on, so that a thousand members beating their hearts cost a thousand assignments.
"""

import asyncio
from collections.abc import Callable

from odradek.coordinator.group import Group, Member


class Sessions:
    """The deadlines of members, and of those who have an id and have not come back with it."""

    def __init__(
        self, on_end: Callable[[Group, Member], None], on_absence: Callable[[Group, str], None]
    ) -> None:
        self._on_end = on_end
        self._on_absence = on_absence
        self._expected: dict[tuple[str, str], asyncio.TimerHandle] = {}

    def extend(self, group: Group, member: Member, timeout_ms: int) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        if member.timer is not None:
            if member.timer.when() <= deadline:
                member.deadline = deadline
                return
            member.timer.cancel()
        member.deadline = deadline
        member.timer = loop.call_at(deadline, self._check, group, member)

    def end(self, member: Member) -> None:
        if member.timer is not None:
            member.timer.cancel()
            member.timer = None

    def _check(self, group: Group, member: Member) -> None:
        loop = asyncio.get_running_loop()
        # Who waits in a join or a sync is here, however long the others take; but a newcomer that
        # waits for ever may have gone without a word.
        if (member.joining is not None or member.syncing is not None) and not member.is_new:
            member.deadline = max(member.deadline, loop.time() + member.session_timeout_ms / 1000)
        if member.deadline > loop.time():
            member.timer = loop.call_at(member.deadline, self._check, group, member)
            return
        member.timer = None
        self._on_end(group, member)

    def expect(self, group: Group, member_id: str, timeout_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._expected[group.id, member_id] = loop.call_later(
            timeout_ms / 1000, self._on_absence, group, member_id
        )

    def stop_expecting(self, group: Group, member_id: str) -> None:
        timer = self._expected.pop((group.id, member_id), None)
        if timer is not None:
            timer.cancel()
