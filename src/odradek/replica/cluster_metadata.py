"""What replication needs to know of the cluster around it: the broker's metadata cache has it."""

from typing import Protocol

from odradek.wire.messages.update_metadata import UpdateMetadataRequest
from odradek.wire.topics import TopicPartition

__all__ = ["ClusterMetadata"]


class ClusterMetadata(Protocol):
    """Live brokers and known partitions, as the controller's last UpdateMetadata listed them."""

    # The active controller, as far as is known.
    controller_id: int | None

    def is_alive(self, broker_id: int) -> bool: ...

    def endpoint(self, broker_id: int, listener: str) -> tuple[str, int] | None: ...

    def rack(self, broker_id: int) -> str | None: ...

    def __contains__(self, tp: TopicPartition) -> bool: ...

    def update(self, request: UpdateMetadataRequest) -> list[TopicPartition]:
        """Apply the request; returns the partitions that were deleted by it."""
        ...
