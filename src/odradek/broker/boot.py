"""Whether a broker that was not shut down may have forgotten what it wrote.

What a process wrote is in the page cache and outlives it, but not the machine. Each log directory
keeps the name of the boot it was last used in (Linux gives every boot a random id): the same name
at the next start means that nothing was forgotten, another that everything unsynced may be, and
none that the disk is another one. A directory that was shut down cleanly was synced, whatever
happened since; but one without a name is another disk also then.
"""

from odradek.log.disk import Disk
from odradek.log.manager import LogManager

__all__ = ["machine_boot_id", "may_have_forgotten", "remember"]

BOOT_ID = "/proc/sys/kernel/random/boot_id"
MARK = ".odradek_boot"


def machine_boot_id() -> str:
    """This machine's boot; empty where the system gives it no name: then never trusted."""
    try:
        with open(BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def may_have_forgotten(disk: Disk, logs: LogManager, boot_id: str) -> bool:
    """To be asked once the directories are loaded."""
    unclean = set(logs.unclean_dirs)
    marks = {path: _mark(disk, path) for path in logs.live_dirs}
    return any(
        mark is None or (path in unclean and (not boot_id or mark != boot_id))
        for path, mark in marks.items()
    )


def remember(disk: Disk, logs: LogManager, boot_id: str) -> None:
    """What is written from now on is written in this boot."""
    for path in logs.live_dirs:
        if _mark(disk, path) != boot_id:
            try:
                disk.write_atomically(f"{path}/{MARK}", boot_id.encode())
            except OSError as error:
                logs.fail_directory(path, error)


def _mark(disk: Disk, path: str) -> str | None:
    try:
        return disk.read_bytes(f"{path}/{MARK}").decode("ascii", "replace")
    except OSError:
        return None
