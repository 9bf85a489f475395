"""What the system says about this process: processor time, memory, open files."""

import os
import platform
from collections.abc import Callable

__all__ = ["ProcessUsage"]

OPEN_FILES = "/proc/self/fd"
MEMORY = "/proc/self/statm"


class ProcessUsage:
    """Where the system does not say, it is 0."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.python = platform.python_version()
        self.started_s = clock() / 1000

    @staticmethod
    def cpu_s() -> float:
        times = os.times()
        return times.user + times.system

    @staticmethod
    def resident_bytes() -> int:
        try:
            with open(MEMORY, encoding="ascii") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            return 0

    @staticmethod
    def open_files() -> int:
        try:
            # Since Linux 6.2 the size is their number. Listing takes milliseconds for thousands.
            return os.stat(OPEN_FILES).st_size or len(os.listdir(OPEN_FILES))
        except OSError:
            return 0

    @staticmethod
    def files_max() -> int:
        try:
            import resource
        except ImportError:  # no such limit on this system
            return 0
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
