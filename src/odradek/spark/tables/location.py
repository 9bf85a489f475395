"""Where a table is: a directory of this machine, or a prefix of an S3 bucket.

Both are one file system of Arrow's, rooted at the table, so that the code that reads or writes data
files need not know which. Only a directory has files to sync: a put to S3 is durable.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.spark.errors import TableError

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
S3 = "s3"
WHERE = "a table is a local directory or s3://bucket/prefix"


@dataclass(frozen=True, slots=True)
class Location:
    """A table's address, with the settings by which its store is reached."""

    uri: str
    storage: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, path: str | Path, storage: Mapping[str, str] | None = None) -> "Location":
        """TableError for a store that tables cannot be on."""
        text = str(path)
        scheme = SCHEME.match(text)
        if scheme is None or scheme[1].lower() == "file":
            local = re.sub(r"^file:(//)?", "", text, flags=re.IGNORECASE)
            directory = Path(local).resolve()
            if directory.exists() and not directory.is_dir():
                raise TableError(f"{path} is a file; {WHERE}")
            return cls(str(directory))
        if scheme[1].lower() != S3:
            raise TableError(f"{path}: {WHERE}")
        if not text.partition("://")[2].strip("/"):
            raise TableError(f"{path}: names no bucket; {WHERE}")
        from_environment = {
            name: value for name, value in os.environ.items() if name.startswith("AWS_")
        }
        given = {name.upper(): value for name, value in (storage or {}).items()}
        return cls(text.rstrip("/"), {**from_environment, **given})

    @property
    def root(self) -> Path | None:
        """The directory, if it is one."""
        return None if self.uri.startswith(f"{S3}:") else Path(self.uri)

    @property
    def log(self) -> Path | None:
        """The directory of the log, if it is one."""
        return None if self.root is None else self.root / "_delta_log"

    def files(self) -> Any:
        """Arrow's file system with the table as its root. Needs no `deltalake`."""
        from pyarrow import fs

        if self.root is not None:
            return fs.SubTreeFileSystem(self.uri, fs.LocalFileSystem())
        return fs.SubTreeFileSystem(self.uri.removeprefix(f"{S3}://"), self._s3())

    def _s3(self) -> Any:
        from pyarrow import fs

        endpoint = self.storage.get("AWS_ENDPOINT_URL", "")
        scheme, _, host = endpoint.rpartition("://")
        settings = {
            "access_key": self.storage.get("AWS_ACCESS_KEY_ID"),
            "secret_key": self.storage.get("AWS_SECRET_ACCESS_KEY"),
            "session_token": self.storage.get("AWS_SESSION_TOKEN"),
            "region": self.storage.get("AWS_REGION") or self.storage.get("AWS_DEFAULT_REGION"),
            "endpoint_override": host or None,
            "scheme": scheme or None,
        }
        return fs.S3FileSystem(**{name: value for name, value in settings.items() if value})


def sync(path: Path) -> None:
    """Make a file, or the names in a directory, survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_parents(directory: Path, root: Path) -> None:
    """Sync a directory and those above it up to and including the root's parent."""
    while True:
        sync(directory)
        if directory in (root.parent, directory.parent):
            return
        directory = directory.parent
