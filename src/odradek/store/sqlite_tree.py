"""The tree of nodes in an SQLite file, and the log of what changed in it. One connection of many.

Every operation happens inside ``reading()`` or ``writing()``, an SQLite transaction, which first
takes note of what others changed since this connection last looked: so no read returns a value
whose change this session has not been notified of. ``changes`` numbers every change; its last row,
which is never pruned, also has the id of the last transaction.

The file is in WAL mode with ``synchronous=NORMAL``: a process may die at any instruction,
and nothing committed is lost, nothing half done is seen. A loss of power keeps the file consistent
but may take back the last moments, like the tail of a log that was not flushed;
``synchronous=FULL`` forbids that too, for a disk flush per write.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from odradek.store.api import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    Set,
    Stat,
    StoreError,
    StoreUnavailable,
    validate_path,
)
from odradek.store.watches import Marks

SCHEMA_VERSION = 1
CHANGES_KEPT = 20_000
CHANGES_PRUNED_EVERY = 1_000

# Kinds of change: three of nodes, two of sessions (whose "path" is the session's id).
CREATED, CHANGED, DELETED, SESSION_OPENED, SESSION_ENDED = range(5)
SESSION_KINDS = (SESSION_OPENED, SESSION_ENDED)
EVENT_KINDS = {
    CREATED: EventKind.CREATED,
    CHANGED: EventKind.CHANGED,
    DELETED: EventKind.DELETED,
}

_SCHEMA = """
CREATE TABLE nodes (
    parent TEXT NOT NULL,
    name TEXT NOT NULL,
    data BLOB,
    created INTEGER NOT NULL,
    modified INTEGER NOT NULL,
    version INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    children INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    children_created INTEGER NOT NULL,
    children_modified INTEGER NOT NULL,
    PRIMARY KEY (parent, name)
) WITHOUT ROWID;
CREATE INDEX ephemerals ON nodes (owner) WHERE owner != 0;
CREATE TABLE changes (
    id INTEGER PRIMARY KEY,
    transaction_id INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    path TEXT NOT NULL
);
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    timeout_ms INTEGER NOT NULL,
    process INTEGER NOT NULL
);
INSERT INTO nodes VALUES ('', '', NULL, 0, 0, 0, 0, 0, 0, 0, 0);
INSERT INTO changes VALUES (0, 0, 0, '/');
"""
_STAT = "created, modified, version, owner, children, created_ms"
_AT = "FROM nodes WHERE parent = ? AND name = ?"


class Change(NamedTuple):
    kind: int
    path: str


class Session(NamedTuple):
    id: int
    timeout_ms: int
    process: int


class SqliteTree:
    """One process's connection to the file."""

    def __init__(self, path: Path, synchronous: str = "NORMAL") -> None:
        self.path = path
        # No waiting inside SQLite: it would hold the loop. A locked file is tried again later.
        self._sql = sqlite3.connect(path, timeout=0, isolation_level=None)
        try:
            self._prepare(synchronous)
        except BaseException:
            self._sql.close()
            raise
        self._identity = _identity(path)
        # The last change and transaction this connection knows of.
        self._seen, self.transaction = self._last()
        self._news: list[Change] = []  # what changed, in order, and was not yet taken
        self._gap_since: int | None = None

    def _prepare(self, synchronous: str) -> None:
        execute = self._sql.execute
        (mode,) = execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreUnavailable(
                str(self.path), f"{self.path} cannot be in WAL mode; is it on a network disk?"
            )
        assert synchronous in ("NORMAL", "FULL"), synchronous
        execute(f"PRAGMA synchronous = {synchronous}")
        execute("BEGIN IMMEDIATE")
        try:
            (version,) = execute("PRAGMA user_version").fetchone()
            if version == 0:
                for statement in _SCHEMA.split(";\n"):
                    execute(statement)
                execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            else:
                check_version(self._sql, self.path)
        except BaseException:
            execute("ROLLBACK")
            raise
        execute("COMMIT")

    def close(self) -> None:
        self._sql.close()

    @property
    def is_in_place(self) -> bool:
        """Whether the path still leads to the file that is open here."""
        return _identity(self.path) == self._identity

    # Transactions

    @contextmanager
    def reading(self) -> Iterator[None]:
        self._sql.execute("BEGIN")
        try:
            self._catch_up()
            yield
        finally:
            self._sql.execute("COMMIT")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All that is written inside becomes visible at once at the end, or never."""
        self._sql.execute("BEGIN IMMEDIATE")
        seen, transaction, news = self._seen, self.transaction, len(self._news)
        try:
            self._catch_up()
            seen, transaction, news = self._seen, self.transaction, len(self._news)
            yield
            if self._seen // CHANGES_PRUNED_EVERY != seen // CHANGES_PRUNED_EVERY:
                self._sql.execute("DELETE FROM changes WHERE id < ?", (self._seen - CHANGES_KEPT,))
            self._sql.execute("COMMIT")
        except BaseException:
            self._seen, self.transaction = seen, transaction
            del self._news[news:]
            if self._sql.in_transaction:  # a full disk may have rolled back by itself
                self._sql.execute("ROLLBACK")
            raise

    def _catch_up(self) -> None:
        """Take note of what others changed."""
        last, transaction = self._last()
        if last == self._seen:
            return
        rows = self._sql.execute(
            "SELECT kind, path FROM changes WHERE id > ? ORDER BY id", (self._seen,)
        ).fetchall()
        if len(rows) < last - self._seen and self._gap_since is None:
            self._gap_since = self.transaction
        self._news.extend(map(Change._make, rows))
        self._seen, self.transaction = last, transaction

    def take_news(self) -> list[Change]:
        """What changed, by us or by others, since this was last asked."""
        news, self._news = self._news, []
        return news

    def take_gap(self) -> int | None:
        """If changes were pruned before we saw them: the last transaction we had seen."""
        gap, self._gap_since = self._gap_since, None
        return gap

    def _last(self) -> tuple[int, int]:
        row: tuple[int, int] = self._sql.execute(
            "SELECT id, transaction_id FROM changes ORDER BY id DESC LIMIT 1"
        ).fetchone()
        return row

    def _log(self, kind: int, path: str) -> None:
        self._seen += 1
        self._sql.execute(
            "INSERT INTO changes VALUES (?, ?, ?, ?)", (self._seen, self.transaction, kind, path)
        )
        self._news.append(Change(kind, path))

    # Reads

    def get(self, path: str) -> Node:
        row = self._sql.execute(f"SELECT data, {_STAT} {_AT}", _split(path)).fetchone()
        if row is None:
            raise NoNode(path)
        return row[0], Stat._make(row[1:])

    def exists(self, path: str) -> Stat | None:
        row = self._sql.execute(f"SELECT {_STAT} {_AT}", _split(path)).fetchone()
        return None if row is None else Stat._make(row)

    def children(self, path: str) -> list[str]:
        if self.exists(path) is None:
            raise NoNode(path)
        rows = self._sql.execute("SELECT name FROM nodes WHERE parent = ? ORDER BY name", (path,))
        return [name for (name,) in rows]

    def marks(self, path: str) -> Marks | None:
        row = self._sql.execute(
            f"SELECT created, modified, children_modified {_AT}", _split(path)
        ).fetchone()
        return None if row is None else Marks._make(row)

    # Writes

    def apply(self, operations: Sequence[Operation], session_id: int, now_ms: int) -> list[Result]:
        """All of the operations or none of them; the rest of the transaction is not concerned."""
        seen, transaction, news = self._seen, self.transaction, len(self._news)
        self._sql.execute("SAVEPOINT multi")
        self.transaction += 1
        try:
            results = [self._apply(operation, session_id, now_ms) for operation in operations]
        except (StoreError, ValueError):
            self._sql.execute("ROLLBACK TO multi")
            self._seen, self.transaction = seen, transaction
            del self._news[news:]
            raise
        finally:
            if self._sql.in_transaction:
                self._sql.execute("RELEASE multi")
        return results

    def _apply(self, operation: Operation, session_id: int, now_ms: int) -> Result:
        match operation:
            case Create():
                return self._create(operation, session_id, now_ms)
            case Set(path, data, version):
                stat = self._expect(path, version)
                self._sql.execute(
                    "UPDATE nodes SET data = ?, version = version + 1, modified = ? "
                    "WHERE parent = ? AND name = ?",
                    (data, self.transaction, *_split(path)),
                )
                self._log(CHANGED, path)
                return stat._replace(version=stat.version + 1, modified=self.transaction)
            case Delete(path, version):
                if path == "/":
                    raise ValueError("the root cannot be deleted")
                if self._expect(path, version).children:
                    raise NotEmpty(path)
                self._remove(path)
                return None
            case Check(path, version):
                self._expect(path, version)
                return None

    def _expect(self, path: str, version: int) -> Stat:
        stat = self.exists(path)
        if stat is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, stat.version):
            raise BadVersion(path, f"{path} is at version {stat.version}, not {version}")
        return stat

    def _create(self, create: Create, session_id: int, now_ms: int) -> str:
        path = create.path
        if path == "/":
            raise NodeExists(path)
        parent, name = _split(path + "0" if create.sequential else path)
        row = self._sql.execute(f"SELECT owner, children_created {_AT}", _split(parent)).fetchone()
        if row is None:
            raise NoNode(path)
        if create.sequential:
            path = f"{path}{row[1]:010d}"
            parent, name = _split(path)
        if self.exists(path) is not None:
            raise NodeExists(path)
        if row[0]:
            raise NoChildrenForEphemerals(path)
        now = self.transaction
        owner = session_id if create.ephemeral else 0
        self._sql.execute(
            "INSERT INTO nodes VALUES (?, ?, ?, ?, ?, 0, ?, 0, ?, 0, ?)",
            (parent, name, create.data, now, now, owner, now_ms, now),
        )
        self._sql.execute(
            "UPDATE nodes SET children = children + 1, children_created = children_created + 1, "
            "children_modified = ? WHERE parent = ? AND name = ?",
            (now, *_split(parent)),
        )
        self._log(CREATED, path)
        return path

    def _remove(self, path: str) -> None:
        parent, name = _split(path)
        self._sql.execute("DELETE FROM nodes WHERE parent = ? AND name = ?", (parent, name))
        self._sql.execute(
            "UPDATE nodes SET children = children - 1, children_modified = ? "
            "WHERE parent = ? AND name = ?",
            (self.transaction, *_split(parent)),
        )
        self._log(DELETED, path)

    # Sessions

    def sessions(self) -> list[Session]:
        rows = self._sql.execute("SELECT id, timeout_ms, process FROM sessions ORDER BY id")
        return [Session._make(row) for row in rows]

    def open_session(self, timeout_ms: int, process: int) -> Session:
        """A session's id is the transaction that opened it."""
        self.transaction += 1
        session = Session(self.transaction, timeout_ms, process)
        self._sql.execute("INSERT INTO sessions VALUES (?, ?, ?)", session)
        self._log(SESSION_OPENED, str(session.id))
        return session

    def end_session(self, session_id: int) -> bool:
        """Forget a session and its ephemeral nodes, as one transaction; False if it was over."""
        if not self._sql.execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount:
            return False
        self.transaction += 1
        # Saying twice that the owner is not 0 lets SQLite use the index of ephemeral nodes.
        rows = self._sql.execute(
            "SELECT parent, name FROM nodes WHERE owner = ? AND owner != 0", (session_id,)
        ).fetchall()
        for parent, name in rows:
            self._remove(f"{parent.rstrip('/')}/{name}")
        self._log(SESSION_ENDED, str(session_id))
        return True


def check_version(sql: sqlite3.Connection, path: Path) -> None:
    """Raise unless this is a store that this release can read."""
    (version,) = sql.execute("PRAGMA user_version").fetchone()
    if version != SCHEMA_VERSION:
        raise StoreUnavailable(
            str(path),
            f"{path} is a store of version {version}, and this Odradek reads version"
            f" {SCHEMA_VERSION}",
        )


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells one file from another under the same name; None without a file."""
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return None
    return stat.st_dev, stat.st_ino


def _split(path: str) -> tuple[str, str]:
    """A node's key: its parent's path and its own name. The root has neither."""
    validate_path(path)
    parent, _, name = path.rpartition("/")
    return (parent or "/", name) if name else ("", "")
