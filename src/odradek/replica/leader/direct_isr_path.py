"""ISR changes below inter-broker protocol 2.7-IV2: the leader writes the state node itself.

docs/spec/controller-and-replication.md section 5.3, docs/spec/interchange-with-apache-kafka.md C.
The node is written under the version that the leader knows, and the controller is notified. Legal
in a cluster of any protocol, which is how one is upgraded broker by broker; but one leader does not
change its way within a leader epoch, so it is chosen when the broker starts.
"""

import asyncio
import logging
from collections.abc import Sequence

from odradek.replica.controller_notifications import Notifications
from odradek.replica.leader.isr_change import IsrRefusal, ProposedIsr
from odradek.store.cluster import ClusterStore
from odradek.store.payloads import LeaderAndIsr

__all__ = ["DirectIsrPath"]

logger = logging.getLogger(__name__)


class DirectIsrPath:
    """Writes states, and notifies the controller of those that were written."""

    writes_unchanged_isr = True
    retry_s = 0.5

    def __init__(self, store: ClusterStore, notifications: Notifications) -> None:
        self._store = store
        self._notifications = notifications

    async def write(self, proposals: Sequence[ProposedIsr]) -> list[LeaderAndIsr | IsrRefusal]:
        return await asyncio.gather(*map(self._write, proposals))

    async def _write(self, proposal: ProposedIsr) -> LeaderAndIsr | IsrRefusal:
        change = proposal.change
        if change.is_withdrawn:
            return IsrRefusal.REJECTED
        change.is_sent = True
        written = await self._store.update_isr(change.tp, proposal.state)
        if written is None:
            logger.info(
                "%s: ISR %s rejected, the state is no longer at version %d",
                change.tp,
                list(proposal.state.isr),
                proposal.state.partition_epoch,
            )
            return IsrRefusal.REJECTED
        self._notifications.isr_changed(change.tp)
        return written
