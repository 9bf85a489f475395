"""The files of one segment: their names, and the log file while it is open."""

from odradek.log.disk import Disk, File

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES)

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """The base offset in a file's name, if it has one."""
    digits = name.split(".", 1)[0]
    return int(digits) if len(digits) == 20 and digits.isdecimal() else None


class SegmentFiles:
    """Where a segment's files are. `suffix` follows the kind of file while they are not in use."""

    __slots__ = ("_log", "base_offset", "directory", "disk", "suffix", "was_used")

    def __init__(self, disk: Disk, directory: str, base_offset: int, suffix: str = "") -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self._log: File | None = None
        self.was_used = False

    def path(self, kind: str) -> str:
        return f"{self.directory}/{file_name(self.base_offset, kind)}{self.suffix}"

    @property
    def log_path(self) -> str:
        return self.path(LOG_SUFFIX)

    @property
    def log(self) -> File:
        """Opened on use, for it may have been closed for others since: see open_files.py. So it is
        not to be kept, and written to by position."""
        file = self._log
        if file is None:
            file = self._open()
        self.was_used = True
        return file

    @property
    def modified_ms(self) -> int:
        return self.disk.modified_ms(self.log_path)

    @property
    def is_open(self) -> bool:
        return self._log is not None

    def create(self, *, is_alone: bool = False) -> None:
        """An empty log file, and none of what may stand in its place, unless the directory is known
        to be empty."""
        for kind in () if is_alone else SUFFIXES:
            if self.disk.exists(self.path(kind)):
                self.disk.remove(self.path(kind))
        self._open(create=True)

    def _open(self, create: bool = False) -> File:
        file = self._log = self.disk.open(self.log_path, create)
        self.disk.open_files.add(self)
        return file

    def let_go(self) -> None:
        """Others need the descriptor. Who has the file in use still has it open."""
        self._log = None

    def close(self) -> None:
        """Close the log file without writing anything."""
        self.disk.open_files.discard(self)
        file, self._log = self._log, None
        if file is not None:
            file.close()
