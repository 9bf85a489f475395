"""One flush of a log: which files, up to which offset.

A flush has three steps, so that the second, which blocks, can run off the loop: `Log.start_flush`,
`Flush.sync`, `Log.finish_flush`.
"""

from dataclasses import dataclass

from odradek.log.disk import Disk


@dataclass(frozen=True, slots=True)
class Flush:
    """One flush up to `end_offset`. `sync` blocks and may run off the loop: it touches files only,
    nothing of the log, and opens each for itself, because the log's may be closed for others;
    `Log.finish_flush` then says on the loop that it was done. If the directory was renamed
    meanwhile it was not: then another must follow."""

    disk: Disk
    directory: str
    end_offset: int
    truncations: int
    paths: list[str]

    def sync(self) -> None:
        for path in self.paths:
            try:
                opened = self.disk.open(path)
            except FileNotFoundError:
                continue  # Never written, or deleted.
            if opened.size:
                opened.sync()
            opened.close()
        self.disk.sync_dir(self.directory)

    def sync_later(self, to_sync: list[str]) -> None:
        """Leave it to the caller, who does not believe `finish_flush` before it is done."""
        disk = self.disk
        to_sync += [path for path in self.paths if disk.exists(path) and disk.size(path)]
        to_sync.append(self.directory)
