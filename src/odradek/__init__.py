"""Odradek: a Kafka-compatible replicated log."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.testing.cluster import Cluster

__all__ = ["Cluster"]


def __getattr__(name: str) -> object:
    # A broker imports this package too and must start lean: what starts clusters comes on demand.
    if name == "Cluster":
        from odradek.testing.cluster import Cluster

        return Cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
