"""Two directories exchange their names at one stroke, so that a reader sees one or the other.

POSIX has no such call; Linux and macOS each have one of their own.
"""

import ctypes
import errno
import os
import sys
from pathlib import Path

LINUX_EXCHANGE = 2
MACOS_SWAP = 2
AT_FDCWD = -100


def swap(one: Path, other: Path) -> None:
    """Exchange two paths of one file system. OSError if this system cannot."""
    library = ctypes.CDLL(None, use_errno=True)
    paths = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin":
        result = library.renamex_np(*paths, MACOS_SWAP)
    elif hasattr(library, "renameat2"):
        result = library.renameat2(AT_FDCWD, paths[0], AT_FDCWD, paths[1], LINUX_EXCHANGE)
    else:
        raise OSError(errno.ENOSYS, "this system cannot exchange two directories")
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one))
