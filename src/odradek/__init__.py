"""Odradek: a Kafka-compatible replicated log."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.testing.cluster import Cluster

__all__ = ["Cluster", "__version__"]

# The one place where the version stands; the package's metadata is made from it.
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # A broker imports this package, too, and must start fast: `Cluster` is imported on first use.
    if name == "Cluster":
        from odradek.testing.cluster import Cluster

        return Cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
