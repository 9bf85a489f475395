"""Copies of an SQLite store: made while brokers run, put back while none does.

A backup is a consistent copy of one moment (SQLite's online backup), written beside its name and
moved there when it is complete: a crash leaves a file that ends in `.part` and no backup. A
restored store is put in place the same way, and what was there before is kept under another name.

A restored store is older than the logs. Sessions of the time of the backup, with their ephemeral
nodes, are dropped. Every leader epoch and the controller epoch are raised, so that what is elected
from now on comes after everything that was elected since the backup. What cannot be restored is
what the ISRs have become since: a replica that has left an ISR since the backup is a member again,
and may lead.
"""

import fcntl
import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from odradek.store import paths, payloads
from odradek.store.api import Set, StoreError, StoreUnavailable
from odradek.store.sqlite import DIRECTORY_MODE, FILE_MODE, unavailable
from odradek.store.sqlite_tree import SqliteTree, check_version
from odradek.wire.topics import TopicPartition

# More elections than a cluster has between a backup and its restoration.
EPOCHS_RAISED_BY = 1_000_000
# What SQLite keeps beside a database, by the ends of names: no other may find it there.
COMPANIONS = ("-wal", "-shm")


class StoreInUse(StoreError):
    """Brokers run on the store."""


def backup(store: Path, target: Path) -> None:
    """Copy the store, which may be in use, to a file that must not exist."""
    if target.exists():
        raise FileExistsError(f"{target} exists")
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    _copy(store, part)
    os.replace(part, target)
    _sync_directory(target.parent)


def restore(source: Path, store: Path) -> Path | None:
    """Put a backup in the store's place; answers where the former store is kept, if there was one.

    Raises StoreInUse while a session is open.
    """
    running = open_sessions(store)
    if running:
        raise StoreInUse(
            str(store), f"{store} is in use by {len(running)} sessions: stop all brokers first"
        )
    part = store.with_name(f"{store.name}.part")
    for name in (part, *(Path(f"{part}{suffix}") for suffix in COMPANIONS)):
        name.unlink(missing_ok=True)
    store.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    _copy(source, part)
    _renew(part)
    former = _keep(store)
    os.replace(part, store)
    _sync_directory(store.parent)
    return former


def open_sessions(store: Path) -> list[int]:
    """Sessions whose process lives, by the locks they hold beside the store."""
    found = []
    for path in sorted(Path(f"{store}.sessions").glob("*.lock")):
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(int(path.stem))
    return found


def _copy(source: Path, target: Path) -> None:
    """A whole and checked copy of a store, with the credentials in it its owner's alone."""
    if not source.is_file():
        raise StoreUnavailable(str(source), f"{source} does not exist")
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
    try:
        with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
            check_version(old, source)
            old.backup(new)
            (found,) = new.execute("PRAGMA integrity_check").fetchone()
            if found != "ok":
                raise StoreUnavailable(str(source), f"{source} is damaged: {found}")
    except sqlite3.Error as error:
        raise unavailable(source, error) from error
    with target.open("rb") as file:
        os.fsync(file.fileno())


def _renew(store: Path) -> None:
    """Drop the sessions of the time of the backup, and raise all epochs."""
    tree = SqliteTree(store, "FULL")
    try:
        with tree.writing():
            for session in tree.sessions():
                tree.end_session(session.id)
            writes = [*_raised_controller_epoch(tree), *_raised_states(tree)]
            if writes:
                tree.apply(writes, 0, 0)
    finally:
        tree.close()


def _raised_controller_epoch(tree: SqliteTree) -> list[Set]:
    if tree.exists(paths.CONTROLLER_EPOCH) is None:
        return []
    epoch = payloads.decode_controller_epoch(tree.get(paths.CONTROLLER_EPOCH)[0])
    data = payloads.encode_controller_epoch(epoch + EPOCHS_RAISED_BY)
    return [Set(paths.CONTROLLER_EPOCH, data)]


def _raised_states(tree: SqliteTree) -> list[Set]:
    writes = []
    for topic in _children(tree, paths.TOPICS):
        for number in _children(tree, paths.partitions(topic)):
            tp = TopicPartition(topic, int(number))
            path = paths.partition_state(tp)
            if tree.exists(path) is None:
                continue
            state = payloads.decode_state(tp, tree.get(path)[0], 0)
            if state is not None:
                raised = replace(state, leader_epoch=state.leader_epoch + EPOCHS_RAISED_BY)
                writes.append(Set(path, payloads.encode_state(raised)))
    return writes


def _children(tree: SqliteTree, path: str) -> list[str]:
    return [] if tree.exists(path) is None else tree.children(path)


def _keep(store: Path) -> Path | None:
    """Give the store that is there a second name. Its own name is taken over in one step later, so
    that a crash never leaves it without a store: a start would make an empty one."""
    if not store.exists():
        for suffix in COMPANIONS:
            Path(f"{store}{suffix}").unlink(missing_ok=True)  # of a file that is gone
        return None
    number = 1
    while (former := store.with_name(f"{store.name}.replaced-{number}")).exists():
        number += 1
    try:
        SqliteTree(store).close()  # takes what SQLite keeps beside it into the file
    except (sqlite3.Error, StoreError):
        pass  # damaged: keep it as it is
    os.link(store, former)
    for suffix in COMPANIONS:
        if Path(f"{store}{suffix}").exists():
            os.replace(f"{store}{suffix}", f"{former}{suffix}")
    return former


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
