"""One contract for the simulated disk and the real one; then what only the simulated one does."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.log.disk import Disk, RealDisk
from odradek.sim.disk import SimDisk
from odradek.sim.loop import SimLoop


@pytest.fixture
def platter() -> SimDisk:
    return SimDisk(clock=lambda: 1_000)


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop()
    yield loop
    loop.close()


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path, loop: SimLoop) -> tuple[Disk, str]:
    if request.param == "real":
        return RealDisk(), str(tmp_path)
    disk = SimDisk(clock=lambda: 1_000).mounted(loop.process("a"))
    disk.make_dirs("/data")
    return disk, "/data"


def test_append_read_write_truncate(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/f", create=True)
    file.append(b"hello")
    file.append([b" ", bytearray(b"wor"), memoryview(b"ld")])
    assert file.size == 11
    assert file.read(0, 100) == b"hello world"
    file.write_at(0, b"J")
    file.truncate(5)
    assert file.read(0, 100) == b"Jello"
    file.truncate(7)
    assert file.read(0, 100) == b"Jello\0\0"
    assert file.read(50, 10) == b""
    file.sync()
    file.close()
    assert disk.size(f"{root}/f") == 7


def test_what_is_not_there(place: tuple[Disk, str]) -> None:
    disk, root = place
    for attempt in (
        lambda: disk.open(f"{root}/none"),
        lambda: disk.open(f"{root}/no/dir", create=True),
        lambda: disk.read_bytes(f"{root}/none"),
        lambda: disk.remove(f"{root}/none"),
        lambda: disk.list_dir(f"{root}/none"),
        lambda: disk.rename(f"{root}/none", f"{root}/other"),
        lambda: disk.size(f"{root}/none"),
    ):
        with pytest.raises(FileNotFoundError):
            attempt()
    assert not disk.exists(f"{root}/none")


def test_directories(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.make_dirs(f"{root}/a/b")
    disk.open(f"{root}/a/b/f", create=True).append(b"1")
    disk.open(f"{root}/a/g", create=True)
    assert disk.list_dir(f"{root}/a") == ["b", "g"]
    assert disk.is_dir(f"{root}/a/b")
    assert not disk.is_dir(f"{root}/a/g")
    disk.rename(f"{root}/a", f"{root}/z")
    assert disk.list_dir(root) == ["z"]
    assert disk.read_bytes(f"{root}/z/b/f") == b"1"
    disk.remove_tree(f"{root}/z")
    assert disk.list_dir(root) == []


def test_an_open_file_survives_its_rename(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/f", create=True)
    disk.rename(f"{root}/f", f"{root}/g")
    file.append(b"x")
    assert disk.read_bytes(f"{root}/g") == b"x"


def test_write_atomically_replaces_and_leaves_nothing_behind(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.write_atomically(f"{root}/f", b"old and longer")
    disk.write_atomically(f"{root}/f", b"new")
    assert disk.read_bytes(f"{root}/f") == b"new"
    assert disk.list_dir(root) == ["f"]


def test_power_loss_leaves_a_prefix_of_the_unsynced_writes(platter: SimDisk, loop: SimLoop) -> None:
    disk = platter.mounted(loop.process("a"))
    outcomes = set()
    for seed in range(200):
        platter.erase()
        file = disk.open("/f", create=True)
        file.append(b"synced")
        file.sync()
        file.append(b"AAAA")
        file.append(b"BBBB")
        platter.lose_power(random.Random(seed))
        outcomes.add(disk.read_bytes("/f"))
    for outcome in outcomes:
        rest = outcome.removeprefix(b"synced")
        assert len(rest) < len(outcome)
        assert b"AAAABBBB".startswith(rest.rstrip(b"\0"))
    assert {b"synced", b"syncedAAAA", b"syncedAAAABBBB"} <= outcomes
    assert any(outcome.endswith(b"\0") for outcome in outcomes), "zeros where data was to be"
    assert b"syncedAA" in outcomes, "a torn write"


def test_a_synced_truncation_stays_and_an_unsynced_one_may_not(
    platter: SimDisk, loop: SimLoop
) -> None:
    disk = platter.mounted(loop.process("a"))
    outcomes = set()
    for seed in range(50):
        platter.erase()
        file = disk.open("/f", create=True)
        file.append(b"0123456789")
        file.sync()
        file.truncate(4)
        platter.lose_power(random.Random(seed))
        outcomes.add(disk.read_bytes("/f"))
    assert outcomes == {b"0123456789", b"0123"}


def test_a_full_disk_takes_what_fits_and_forgets_nothing(platter: SimDisk, loop: SimLoop) -> None:
    disk = platter.mounted(loop.process("a"))
    platter.capacity_bytes = 10
    file = disk.open("/f", create=True)
    file.append(b"12345678")
    with pytest.raises(OSError, match="no space"):
        file.append(b"abc")
    assert file.read(0, 100) == b"12345678ab"
    with pytest.raises(OSError, match="no space"):
        file.append(b"c")
    assert disk.space("/") == (10, 0)
    file.write_at(9, b"x")  # in place
    assert file.read(0, 100) == b"12345678ax"
    file.truncate(2)
    file.append(b"abc")
    assert disk.space("/") == (10, 5)


def test_a_failed_directory_fails_alone(platter: SimDisk, loop: SimLoop) -> None:
    disk = platter.mounted(loop.process("a"))
    disk.make_dirs("/one")
    disk.make_dirs("/two")
    good, bad = disk.open("/one/f", create=True), disk.open("/two/f", create=True)
    platter.failed.add("/two")
    good.append(b"x")
    for attempt in (lambda: bad.append(b"x"), lambda: disk.list_dir("/two"), bad.sync):
        with pytest.raises(OSError, match="input/output"):
            attempt()


def test_a_lock_is_held_until_its_process_dies(platter: SimDisk, loop: SimLoop) -> None:
    first, second = loop.process("a"), loop.process("a")
    platter.mounted(first).lock("/.lock")
    with pytest.raises(BlockingIOError):
        platter.mounted(second).lock("/.lock")
    first.kill()
    platter.mounted(second).lock("/.lock")


def test_damage_is_done_to_one_file_of_a_log_directory(platter: SimDisk, loop: SimLoop) -> None:
    disk = platter.mounted(loop.process("a"))
    disk.make_dirs("/data/t-0")
    assert platter.damage(random.Random(1), "/data") is None
    before = {f"/data/t-0/{name}": name.encode() * 9 for name in ("0.log", "5.log", "0.index")}
    before["/data/meta.properties"] = b"broker.id=1"
    ways = set()
    for seed in range(200):
        for path, data in before.items():
            disk.write_atomically(path, data)
        done = platter.damage(random.Random(seed), "/data")
        assert done is not None
        way, path = done.split()
        after = {path: disk.read_bytes(path) for path in before if disk.exists(path)}
        assert {path for path in before if after.get(path) != before[path]} <= {path}
        assert "meta.properties" not in path
        assert way not in ("zero", "flip") or not path.endswith("0.log"), "it is closed"
        platter.lose_power(random.Random(seed))
        assert {path: disk.read_bytes(path) for path in after} == after, "power cannot undo it"
        ways.add(way)
    assert ways == {"shorten", "lengthen", "remove", "zero", "flip"}
