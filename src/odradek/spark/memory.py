"""How a worker's memory is asked for.

Every piece of a fetch needs a few megabytes for a moment. The C library gets blocks of that size
from the system and gives them back each time, and the system clears each page when it is first
touched: that took half the time of decoding. Told to keep them, it uses the same ones again.
"""

import ctypes
import functools
import sys

# The numbers of glibc's <malloc.h>.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

# Blocks up to the first stay with the process, until the second is free at its end.
BLOCK_BYTES_MAX = 4 * 1024 * 1024
FREE_BYTES_MAX = 16 * 1024 * 1024


@functools.cache
def keep_blocks() -> None:
    """Let this process keep the large blocks it frees. Without effect where it cannot be told."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, BLOCK_BYTES_MAX)
        mallopt(_M_TRIM_THRESHOLD, FREE_BYTES_MAX)
