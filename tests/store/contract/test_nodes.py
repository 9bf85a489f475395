"""Nodes: data, versions, names, and the ids of transactions."""

import pytest

from odradek.store.api import (
    BadVersion,
    Create,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Set,
    Store,
)


async def test_null_is_not_empty(store: Store) -> None:
    await store.create("/null", None)
    await store.create("/empty", b"")
    assert (await store.get("/null"))[0] is None
    assert (await store.get("/empty"))[0] == b""
    await store.set("/empty", None)
    await store.set("/null", b"")
    assert (await store.get("/empty"))[0] is None
    assert (await store.get("/null"))[0] == b""


async def test_data_is_kept_byte_for_byte(store: Store) -> None:
    data = bytes(range(256)) * 2000
    await store.create("/data", data)
    assert (await store.get("/data"))[0] == data


async def test_a_write_counts_the_version_and_keeps_the_creation(store: Store) -> None:
    await store.create("/a", b"0")
    first = await store.exists("/a")
    assert first is not None and first.version == 0 and first.modified == first.created
    second = await store.set("/a", b"1")
    assert second.version == 1 and second.created == first.created
    assert second.modified > first.modified
    assert await store.get("/a") == (b"1", second)


async def test_a_write_under_an_old_version_is_refused(store: Store) -> None:
    await store.create("/a", b"0")
    await store.set("/a", b"1", 0)
    with pytest.raises(BadVersion) as refused:
        await store.set("/a", b"2", 0)
    assert refused.value.path == "/a"
    with pytest.raises(BadVersion):
        await store.delete("/a", 0)
    assert (await store.get("/a"))[0] == b"1"
    await store.delete("/a", 1)
    assert await store.exists("/a") is None


async def test_recreation_starts_versions_again_but_not_transactions(store: Store) -> None:
    await store.create("/a", b"")
    before = await store.set("/a", b"1")
    await store.delete("/a")
    await store.create("/a", b"")
    after = await store.exists("/a")
    assert after is not None and after.version == 0 and after.created > before.modified


async def test_what_is_missing_is_named(store: Store) -> None:
    for attempt in (
        store.get("/no"),
        store.set("/no", b""),
        store.delete("/no"),
        store.children("/no"),
        store.create("/no/child", b""),
    ):
        with pytest.raises(NoNode) as missing:
            await attempt
        assert missing.value.path.startswith("/no")
    assert await store.exists("/no") is None


async def test_a_node_is_created_once(store: Store) -> None:
    await store.create("/a", b"first")
    with pytest.raises(NodeExists):
        await store.create("/a", b"second")
    assert (await store.get("/a"))[0] == b"first"


async def test_a_node_with_children_stays(store: Store) -> None:
    await store.create("/a", None)
    await store.create("/a/b", None)
    with pytest.raises(NotEmpty):
        await store.delete("/a")
    await store.delete("/a/b")
    await store.delete("/a")
    assert await store.children("/") == [n for n in await store.children("/") if n != "a"]


async def test_children_are_names_and_counted(store: Store) -> None:
    await store.create("/a", None)
    for name in ("z", "b", "b-1", "ß"):
        await store.create(f"/a/{name}", None)
    await store.create("/a/b/deep", None)
    await store.create("/ab", None)
    assert await store.children("/a") == sorted(["z", "b", "b-1", "ß"])
    stat = await store.exists("/a")
    assert stat is not None and stat.children == 4 and stat.version == 0


async def test_an_ephemeral_node_knows_its_owner_and_has_no_children(store: Store) -> None:
    await store.create("/mine", b"", ephemeral=True)
    await store.create("/ours", b"")
    mine, ours = await store.exists("/mine"), await store.exists("/ours")
    assert mine is not None and mine.owner == store.session_id != 0
    assert ours is not None and ours.owner == 0
    with pytest.raises(NoChildrenForEphemerals):
        await store.create("/mine/child", b"")


async def test_sequential_names_count_every_child_there_ever_was(store: Store) -> None:
    await store.create("/q", None)
    assert await store.create("/q/n-", None, sequential=True) == "/q/n-0000000000"
    await store.create("/q/other", None)
    await store.delete("/q/n-0000000000")
    assert await store.create("/q/n-", None, sequential=True) == "/q/n-0000000002"
    assert await store.create("/q/", b"", sequential=True, ephemeral=True) == "/q/0000000003"
    results = await store.multi(
        [Create("/q/m-", None, sequential=True), Create("/q/m-", None, sequential=True)]
    )
    assert results == ["/q/m-0000000004", "/q/m-0000000005"]


async def test_transactions_only_grow_over_the_whole_tree(store: Store) -> None:
    seen = []
    for number in range(10):
        await store.create(f"/n{number}", None)
        stat = await store.set("/n0", b"%d" % number)
        created = await store.exists(f"/n{number}")
        assert created is not None
        seen += [created.created, stat.modified]
    assert seen == sorted(seen) and len(set(seen)) == len(seen)


async def test_a_creation_is_dated(store: Store) -> None:
    await store.create("/a", None)
    first = await store.exists("/a")
    second = await store.set("/a", b"")
    assert first is not None and first.created_ms == second.created_ms >= 0


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a//b", "/a/../b", "/./a", "/a\0b"])
async def test_nonsense_is_no_path(store: Store, path: str) -> None:
    for attempt in (store.get(path), store.exists(path), store.children(path)):
        with pytest.raises(ValueError):
            await attempt
    with pytest.raises(ValueError):
        await store.create(path, None)


async def test_the_root_is_there_and_stays(store: Store) -> None:
    assert (await store.exists("/")) is not None
    with pytest.raises(NodeExists):
        await store.create("/", None)
    with pytest.raises(ValueError):
        await store.delete("/")
    await store.multi([Set("/", b"data of the root")])
    assert (await store.get("/"))[0] == b"data of the root"
