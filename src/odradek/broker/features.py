"""The epoch of the cluster's features, followed in the store (KIP-584).

A cluster on ZooKeeper never has a feature; all that clients see of `/feature` is its version, once
a controller at inter-broker protocol 2.7 or later has enabled it. A broker below does not look.
docs/spec/protocol-ladder.md section 6.3.
"""

from odradek.broker.store_follower import StoreFollower
from odradek.store.cluster import ClusterStore
from odradek.store.controller_nodes import NO_FEATURES

__all__ = ["FeatureFollower"]


class FeatureFollower(StoreFollower):
    """`epoch` is that of the enabled feature node, -1 without one."""

    def __init__(self, store: ClusterStore) -> None:
        super().__init__(store.session, "feature node")
        self._nodes = store.controller
        self.epoch = NO_FEATURES

    async def start(self) -> None:
        """Returns when the node was read once."""
        await self.read()
        self.begin(with_read=False)

    async def read(self) -> None:
        self.epoch = await self._nodes.features_epoch(self.watched)
