"""Many operations: as one transaction, and many at once."""

import asyncio

import pytest
from tests.store.conftest import Backend, Recorder

from odradek.store.api import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    Stat,
    Store,
    StoreError,
)


async def test_a_multi_is_one_transaction(store: Store) -> None:
    await store.create("/gone", None)
    path, stat, deleted, checked = await store.multi(
        [
            Create("/a", None, ephemeral=True),
            Set("/a", b"1", 0),
            Delete("/gone", 0),
            Check("/a", 1),
        ]
    )
    assert path == "/a" and deleted is None and checked is None
    assert isinstance(stat, Stat)
    assert stat.version == 1 and stat.created == stat.modified and stat.owner == store.session_id
    assert await store.get("/a") == (b"1", stat)
    assert await store.exists("/gone") is None


@pytest.mark.parametrize(
    ("last", "error", "path"),
    [
        (Check("/here", 7), BadVersion, "/here"),
        (Set("/here", b"", 7), BadVersion, "/here"),
        (Set("/no", b""), NoNode, "/no"),
        (Delete("/no"), NoNode, "/no"),
        (Delete("/new"), NotEmpty, "/new"),
        (Create("/here", b""), NodeExists, "/here"),
        (Create("/no/child", b""), NoNode, "/no/child"),
        (Check("/no", 0), NoNode, "/no"),
    ],
)
async def test_a_multi_that_fails_leaves_nothing(
    store: Store, last: Operation, error: type[StoreError], path: str
) -> None:
    await store.create("/here", b"data")
    before = await store.get("/here")
    with pytest.raises(error) as failed:
        await store.multi(
            [
                Create("/new", None),
                Create("/new/child", None),
                Create("/here/s-", None, sequential=True),
                Create("/mine", None, ephemeral=True),
                Set("/here", b"changed"),
                Delete("/mine"),
                Create("/mine", b"", ephemeral=True),
                Check("/here", 1),
                last,
                Create("/later", None),
            ]
        )
    assert failed.value.path == path
    assert await store.get("/here") == before
    for absent in ("/new", "/mine", "/later"):
        assert await store.exists(absent) is None
    # What failed leaves no trace in sequences either.
    assert await store.create("/here/s-", None, sequential=True) == "/here/s-0000000000"


async def test_of_many_multis_each_stands_alone(store: Store) -> None:
    await store.create("/fence", b"")
    await store.create("/b", b"")
    results = await store.multi_many(
        [
            [Check("/fence", 0), Create("/a", b"")],
            [Check("/fence", 0), Set("/b", b"", 9)],
            [Check("/fence", 0), Set("/a", b"again")],
            [Check("/fence", 1), Set("/a", b"never")],
            [Create("/c", b""), Create("/c", b"")],
        ]
    )
    assert results[0] == [None, "/a"]
    assert isinstance(results[1], BadVersion) and results[1].path == "/b"
    assert isinstance(results[2], list) and isinstance(results[2][1], Stat)
    assert isinstance(results[3], BadVersion) and results[3].path == "/fence"
    assert isinstance(results[4], NodeExists)
    assert (await store.get("/a"))[0] == b"again"
    assert await store.exists("/c") is None
    a, b = await store.exists("/a"), await store.exists("/b")
    assert a is not None and b is not None and a.modified > a.created


async def test_many_are_read_in_the_order_asked(store: Store) -> None:
    for number in range(5):
        await store.create(f"/n{number}", b"%d" % number)
    nodes = await store.get_many(["/n3", "/missing", "/n1", "/n3"])
    assert [node and node[0] for node in nodes] == [b"3", None, b"1", b"3"]
    assert await store.get_many([]) == []
    assert await store.multi_many([]) == []


async def test_operations_happen_in_the_order_asked(store: Store) -> None:
    await store.create("/a", b"")
    writing = [asyncio.ensure_future(store.set("/a", b"%d" % number)) for number in range(50)]
    reading = asyncio.ensure_future(store.get("/a"))
    assert (await reading)[0] == b"49"
    assert [(await written).version for written in writing] == list(range(1, 51))


async def test_two_sessions_race_and_one_wins(backend: Backend, store: Store) -> None:
    other = await backend.open()
    await store.create("/epoch", b"0")
    attempts = await asyncio.gather(
        *(
            session.multi([Create("/controller", None, ephemeral=True), Set("/epoch", b"1", 0)])
            for session in (store, other)
        ),
        return_exceptions=True,
    )
    assert sorted(isinstance(attempt, StoreError) for attempt in attempts) == [False, True]
    stat = await other.exists("/epoch")
    assert stat is not None and stat.version == 1


async def test_twenty_thousand_nodes(backend: Backend, recorder: type[Recorder]) -> None:
    """Creating, listing and reading them in bulk; a session that missed it gets the events."""
    store, other = await backend.open(20_000), await backend.open(20_000)
    await store.create("/many", None)
    seen = recorder()
    assert await other.children("/many", seen) == []
    names = [f"p{number:06d}" for number in range(20_000)]
    created = await store.multi_many(
        [Create(f"/many/{name}", name.encode()) for name in names[start : start + 100]]
        for start in range(0, len(names), 100)
    )
    assert not [result for result in created if isinstance(result, StoreError)]
    await seen.next()
    assert await other.children("/many") == names
    some = names[::10]
    nodes = await other.get_many([f"/many/{name}" for name in some])
    assert [node and node[0] for node in nodes] == [name.encode() for name in some]


async def test_an_ephemeral_node_that_changes_hands_goes_with_its_new_owner(
    store: Store, backend: Backend
) -> None:
    other = await backend.open()
    await store.create("/here", b"first", ephemeral=True)
    await other.multi([Delete("/here"), Create("/here", b"second", ephemeral=True)])
    await store.close()
    found = await other.get("/here")
    assert found is not None and found[1].owner == other.session_id
    await other.close()
    third = await backend.open()
    assert await third.exists("/here") is None
    await third.close()
