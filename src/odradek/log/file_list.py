"""The names in one log's directory, read once, where each file would be asked for otherwise."""

from odradek.log.disk import Disk
from odradek.wire.crc32c import crc32c

__all__ = ["ABSENT", "FileList"]

# Instead of the size or the checksum of a file that is not there.
ABSENT = -1


class FileList:
    """What was in the directory when this was made."""

    __slots__ = ("_disk", "directory", "names")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.directory = directory
        self.names = frozenset(disk.list_dir(directory))

    def size(self, name: str) -> int:
        return self._disk.size(f"{self.directory}/{name}") if name in self.names else ABSENT

    def checksum(self, name: str) -> int:
        if name not in self.names:
            return ABSENT
        return crc32c(self._disk.read_bytes(f"{self.directory}/{name}"))
