"""How a worker's memory is asked for, so that it stays small whatever it reads or writes.

Arrow's own allocator takes five times what is in use at any moment and keeps it, which a worker
that also holds a compiler cannot afford; so Arrow allocates through the C library.
The C library gets large blocks from the system and gives them back each time, and the system clears
each page when it is first touched. A read needs a few megabytes for a moment with every piece of a
fetch: that clearing took half the time of decoding. So a read has it keep blocks of that size and
use them again, up to a bound. A write passes ever other sizes through two threads, which would keep
more and gain little.
"""

import ctypes
import sys

# The numbers of glibc's <malloc.h>.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

# Of blocks up to the first size, a reading process keeps up to the second at its heap's end.
READ_BLOCK_BYTES_MAX = 4 * 1024 * 1024
READ_FREE_BYTES_MAX = 16 * 1024 * 1024
# What glibc begins with, before it learns sizes from what is freed.
WRITE_BLOCK_BYTES_MAX = 128 * 1024
WRITE_FREE_BYTES_MAX = 128 * 1024


def for_reading() -> None:
    """Let this process, a worker that reads, keep the blocks it frees. Linux only."""
    _ask_for_memory(READ_BLOCK_BYTES_MAX, READ_FREE_BYTES_MAX)


def for_writing() -> None:
    """Let this process, a worker that writes, give back the blocks it frees. Linux only."""
    _ask_for_memory(WRITE_BLOCK_BYTES_MAX, WRITE_FREE_BYTES_MAX)


def _ask_for_memory(block_bytes_max: int, free_bytes_max: int) -> None:
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    # Here, so that planning a query does not load pyarrow.
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
    mallopt(_M_MMAP_THRESHOLD, block_bytes_max)
    mallopt(_M_TRIM_THRESHOLD, free_bytes_max)
