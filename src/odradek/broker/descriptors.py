"""How a broker divides the descriptors that the system gives it."""

from typing import NamedTuple

from odradek.broker.admission import UNLIMITED
from odradek.log.open_files import FILES_MAX

__all__ = ["SPARES", "DescriptorShares", "divide_descriptors"]

# The metadata store, listeners, connections to other brokers, files that are open for a moment.
OTHERS_MAX = 512
# Kept back for files that must be opened when others took all.
SPARES = 4


class DescriptorShares(NamedTuple):
    """Files of logs that are open at a time, and connections that are taken."""

    files: int
    connections: int


def divide_descriptors(limit: int | None) -> DescriptorShares:
    """Half for files of logs, up to what is of use; connections must not take what others need: a
    log that cannot be opened is worse than a client that waits. None is no limit."""
    if limit is None:
        return DescriptorShares(FILES_MAX, UNLIMITED)
    files = max(1, min(FILES_MAX, limit // 2))
    return DescriptorShares(files, max(1, limit - files - min(OTHERS_MAX, limit // 4)))
