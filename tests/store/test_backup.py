"""Backups of the metadata: made while brokers run, restored while none does."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.cli.main import main
from odradek.store.api import StoreUnavailable
from odradek.store.backup import EPOCHS_RAISED_BY, StoreInUse, backup, open_sessions, restore
from odradek.store.cluster import ClusterStore
from odradek.store.payloads import BrokerRegistration, Endpoint, LeaderAndIsr, TopicNode
from odradek.store.sqlite import SqliteStore
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)


async def opened(path: Path) -> ClusterStore:
    cluster = ClusterStore(SqliteStore(path))
    await cluster.session.start()
    await cluster.prepare()
    return cluster


async def filled(path: Path) -> ClusterStore:
    cluster = await opened(path)
    await cluster.register_broker(BrokerRegistration(1, -1, (Endpoint("h", 9092),)))
    fence = (await cluster.controller.elect(1)).fence
    await cluster.create_topic("t", TopicNode({0: (1, 2)}), {"retention.ms": "5"})
    await cluster.create_partition_states({T0: LeaderAndIsr(1, 7, (1, 2), 1)}, fence)
    return cluster


async def test_a_backup_is_made_while_the_store_is_in_use(tmp_path: Path) -> None:
    store, copy = tmp_path / "metadata.db", tmp_path / "copy"
    cluster = await filled(store)
    backup(store, copy)
    await cluster.create_topic("later", TopicNode({0: (1,)}))
    with pytest.raises(StoreInUse, match="stop all brokers first"):
        restore(copy, store)
    assert open_sessions(store) == [cluster.session.session_id]
    await cluster.session.close()

    former = restore(copy, store)
    assert former == tmp_path / "metadata.db.replaced-1"
    again = await opened(store)
    assert await again.topics() == ["t"]
    assert await again.configs.get("topics", "t") == {"retention.ms": "5"}
    # No broker is registered or elected: those were sessions of the time of the backup.
    assert await again.broker_ids() == []
    assert await again.controller.id() is None
    await again.session.close()

    kept = await opened(former)
    assert await kept.topics() == ["later", "t"]
    await kept.session.close()


async def test_copies_are_their_owners_alone(tmp_path: Path) -> None:
    """Verifiers of passwords, and tokens, are in them as in the store."""
    store, copy = tmp_path / "metadata.db", tmp_path / "copy"
    await (await filled(store)).session.close()
    before = os.umask(0o022)
    try:
        backup(store, copy)
        restore(copy, store)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (copy, store)] == [0o600, 0o600]


async def test_what_is_elected_after_a_restoration_comes_after_everything(tmp_path: Path) -> None:
    store, copy = tmp_path / "metadata.db", tmp_path / "copy"
    cluster = await filled(store)
    await cluster.session.close()
    backup(store, copy)
    restore(copy, store)
    again = await opened(store)
    assert (await again.partition_states([T0]))[T0].leader_epoch == 7 + EPOCHS_RAISED_BY
    assert (await again.controller.elect(1)).epoch == 2 + EPOCHS_RAISED_BY
    await again.session.close()


async def test_a_store_that_is_gone_or_damaged_is_restored(tmp_path: Path) -> None:
    store, copy = tmp_path / "metadata.db", tmp_path / "copy"
    await (await filled(store)).session.close()
    backup(store, copy)
    store.unlink()  # a test has no one to wait for
    assert restore(copy, store) is None
    store.write_bytes(b"no database" * 1000)
    (tmp_path / "metadata.db-wal").write_bytes(b"nor this")
    former = restore(copy, store)
    assert former is not None and former.read_bytes().startswith(b"no database")
    again = await opened(store)
    assert await again.topics() == ["t"]
    await again.session.close()


async def test_what_is_no_store_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    store = tmp_path / "metadata.db"
    await (await filled(store)).session.close()
    before = store.read_bytes()
    (tmp_path / "text").write_text("this is no database, it only looks like a file" * 100)
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute("CREATE TABLE t (a)")
    other.close()
    for source, reason in (("text", "no store"), ("other", "version 0"), ("none", "not exist")):
        with pytest.raises(StoreUnavailable, match=reason):
            restore(tmp_path / source, store)
        with pytest.raises(StoreUnavailable, match=reason):
            backup(tmp_path / source, tmp_path / "copy")
    assert store.read_bytes() == before
    assert not (tmp_path / "copy").exists()
    with pytest.raises(FileExistsError):
        backup(store, tmp_path / "text")


async def test_from_the_shell(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    data.mkdir()
    cluster = await filled(data / "metadata.db")
    run = CliRunner().invoke
    made = run(main, ["store", "backup", "--data", str(data), str(copy)])
    assert made.exit_code == 0 and "bytes" in made.output
    refused = run(main, ["store", "restore", "--data", str(data), str(copy), "--yes"])
    assert refused.exit_code == 1 and "stop all brokers first" in refused.output
    await cluster.session.close()
    asked = run(main, ["store", "restore", "--data", str(data), str(copy)], input="n\n")
    assert asked.exit_code == 1 and not (data / "metadata.db.replaced-1").exists()
    done = run(main, ["store", "restore", "--data", str(data), str(copy), "--yes"])
    assert done.exit_code == 0 and "metadata.db.replaced-1" in done.output
    again = run(main, ["store", "backup", "--data", str(data), str(copy)])
    assert again.exit_code == 1 and "exists" in again.output
    # A directory that is to be made, and the file by its own name.
    for place in (tmp_path / "new", tmp_path / "other" / "metadata.db"):
        done = run(main, ["store", "restore", "--data", str(place), str(copy), "--yes"])
        assert done.exit_code == 0
    assert (tmp_path / "new" / "metadata.db").is_file()
    assert (tmp_path / "other" / "metadata.db").is_file()
