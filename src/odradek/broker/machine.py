"""What the machine lets this process use: processors and network. Read from the system's files.

A container's limit is the time it may run per period, not a number of processors: the smallest such
limit of all the groups that the process is in counts, if it is less than the processors it may run
on.
"""

import os
import resource
from pathlib import Path

__all__ = ["Machine"]

# Of a group of version 1 without a limit.
UNLIMITED = -1
BITS_PER_BYTE = 8
MEGA = 1_000_000


class Machine:
    """Where the system does not say, it is 0."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    @staticmethod
    def cpu_s() -> float:
        """Processor time of this process so far."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    def cores(self) -> float:
        allowed = (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 0
        )
        return min([float(allowed), *self._limits()])

    def _limits(self) -> list[float]:
        groups = self._root / "sys/fs/cgroup"
        limits = []
        for line in self._lines("proc/self/cgroup"):
            _, controllers, path = line.split(":", 2)
            # A container may see its path on the host here and only its own group in the tree.
            parts = [part for part in path.split("/") if part not in ("", "..")]
            paths = ["/".join(parts[:count]) for count in range(len(parts) + 1)]
            if not controllers:
                limits += [self._share(groups / each / "cpu.max") for each in paths]
            elif "cpu" in controllers.split(","):
                tree = groups / controllers
                limits += [self._share_v1(tree / each) for each in paths]
        return [limit for limit in limits if limit > 0]

    def _share(self, file: Path) -> float:
        match _words(file):
            case [quota, period] if quota.isdigit() and period.isdigit() and int(period):
                return int(quota) / int(period)
        return UNLIMITED

    def _share_v1(self, group: Path) -> float:
        match _words(group / "cpu.cfs_quota_us"), _words(group / "cpu.cfs_period_us"):
            case [quota], [period] if quota.isdigit() and period.isdigit() and int(period):
                return int(quota) / int(period)
        return UNLIMITED

    def network_bytes_per_second(self) -> int:
        """Of the fastest link that is up and has hardware behind it. The speed that bridges and
        the like report is made up."""
        fastest = 0
        links = self._root / "sys/class/net"
        for name in os.listdir(links) if links.is_dir() else ():
            link = links / name
            if (link / "device").exists() and _words(link / "operstate") == ["up"]:
                match _words(link / "speed"):
                    case [speed] if speed.isdigit():
                        fastest = max(fastest, int(speed))
        return fastest * MEGA // BITS_PER_BYTE

    def _lines(self, name: str) -> list[str]:
        try:
            return [line for line in (self._root / name).read_text().splitlines() if line]
        except (OSError, ValueError):
            return []


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except (OSError, ValueError):
        return []
