"""Landing and compacting, with a process that is killed after every step."""

import errno
import fcntl
import multiprocessing
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.spark.conftest import wait_until

from odradek.cli.pipeline import pipeline
from odradek.spark.pipeline import compacting
from odradek.spark.pipeline import lake as lake_module
from odradek.spark.pipeline.compacting import Busy, compact, recover
from odradek.spark.pipeline.lake import BATCHES_KEPT, Lake, Landed, data_files

# Forking is safe here: the children only touch files.
FORK = multiprocessing.get_context("fork")


class Clock:
    """A compaction's time, in which its wait lasts until a reader is done with what it lists."""

    def __init__(self) -> None:
        self._now = 0.0
        # None while nobody lists: then nobody need be waited for.
        self.listed: Any = None

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds
        if self.listed is not None and seconds > 0:
            before = self.listed.value
            wait_until(lambda: self.listed.value > before, "the reader to have listed")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(compacting, "time", clock)
    return clock


class Numbers:
    """Rows with the numbers of a batch, in two partitions."""

    def __init__(self, batch: int, size: int = 10) -> None:
        self.values = range(batch * size, (batch + 1) * size)

    def write_to(self, directory: Path) -> int:
        for even in (0, 1):
            values = [value for value in self.values if value % 2 == even]
            (directory / f"even={even}").mkdir()
            name = f"even={even}/part-{self.values[0]}-{os.getpid()}.parquet"
            pq.write_table(pa.table({"number": values}), directory / name)
        (directory / "_SUCCESS").touch()
        return len(self.values)


class Nothing:
    def write_to(self, directory: Path) -> int:
        pq.write_table(pa.table({"number": pa.array([], pa.int64())}), directory / "part-0.parquet")
        return 0


def numbers_in(path: Path) -> list[int]:
    if not path.exists():
        return []
    return sorted(ds.dataset(path, partitioning="hive").to_table()["number"].to_pylist())


def numbers_of(file: Path) -> list[int]:
    with pq.ParquetFile(file) as opened:
        numbers: list[int] = opened.read()["number"].to_pylist()
    return numbers


def dies(job: Callable[[], object]) -> None:
    """Run a job in a process that must be killed in it."""
    child = FORK.Process(target=job)
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_batches_add_up_and_are_not_landed_twice(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", "w")
    assert lake.land(0, Numbers(0)).rows == 10
    lake.land(1, Numbers(1))
    assert lake.land(1, Numbers(7)).rows == 10  # Spark repeats a batch: the rows are the same
    assert numbers_in(lake.path) == list(range(20))
    assert sorted(data_files(lake.path)) == sorted(
        str(file.relative_to(lake.path)) for file in lake.path.rglob("*.parquet")
    )
    # Another query's batch 0 is another batch.
    Lake(lake.path, "other").land(0, Numbers(2))
    assert numbers_in(lake.path) == list(range(30))


def test_no_rows_are_no_file(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", "w")
    landed = lake.land(0, Nothing())
    assert landed == Landed(0, (), 0, landed.attempt)
    assert numbers_in(lake.path) == []


def test_only_some_lists_are_kept(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", "w")
    for batch in (0, 1, BATCHES_KEPT):
        lake.land(batch, Numbers(batch))
    assert lake.decided(0) is None
    assert lake.decided(1) is not None


def _after_first_rename(lake: Lake) -> None:
    rename = Path.rename

    def once(self: Path, target: Path) -> Path:
        result = rename(self, target)
        if target.is_relative_to(lake.path):
            killed()
        return result

    Path.rename = once  # type: ignore[assignment,method-assign]  # in a child that dies


STEPS = ["stage", "decide", "first file", "publish", "clean_up"]


@pytest.mark.parametrize("step", STEPS)
def test_killed_after_any_step_a_batch_is_there_once(tmp_path: Path, step: str) -> None:
    lake = Lake(tmp_path / "lake", "w")
    lake.land(0, Numbers(0))

    def land_and_die() -> None:
        rows = Numbers(1)
        if step == "stage":
            write = rows.write_to
            rows.write_to = lambda directory: (write(directory), killed())[0]  # type: ignore[method-assign]
        elif step == "first file":
            _after_first_rename(lake)
        else:
            done = getattr(lake, step)
            setattr(lake, step, lambda *arguments: (done(*arguments), killed()))
        lake.land(1, rows)

    dies(land_and_die)
    landed = numbers_in(lake.path)
    assert len(landed) == len(set(landed))
    lake.land(1, Numbers(1))
    assert numbers_in(lake.path) == list(range(20))
    assert not list((lake.beside / "staging").rglob("*.parquet"))
    lake.land(2, Numbers(2))
    assert numbers_in(lake.path) == list(range(30))


def test_a_driver_thought_dead_that_goes_on_adds_nothing(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", "w")

    class Late(Numbers):
        """Another driver lands the same batch while this one has just written its files."""

        def write_to(self, directory: Path) -> int:
            count = super().write_to(directory)
            Lake(lake.path, "w").land(1, Numbers(1))
            return count

    assert lake.land(1, Late(1)) == lake.decided(1)
    assert numbers_in(lake.path) == list(range(10, 20))
    assert not list((lake.beside / "staging").rglob("*.parquet"))
    # And one that wakes up in the middle of writing, long after.
    dead = lake.beside / "staging" / "w" / "1-dead"
    dead.mkdir(parents=True)
    Numbers(1).write_to(dead)
    lake.land(1, Numbers(1))
    assert numbers_in(lake.path) == list(range(10, 20))


def small_lake(path: Path, batches: int = 6) -> Lake:
    lake = Lake(path / "lake", "w")
    for batch in range(batches):
        lake.land(batch, Numbers(batch))
    return lake


def test_small_files_become_one_and_large_ones_stay(tmp_path: Path) -> None:
    lake = small_lake(tmp_path)
    large = lake.path / "even=0" / "large.parquet"
    pq.write_table(pa.table({"number": list(range(1000, 2000))}), large, compression="none")
    target = int(large.stat().st_size / 0.8)
    done = {one.directory: one for one in compact(lake, target)}
    assert done["even=1"].files_before == 6
    assert done["even=1"].files_after == 1
    assert large.exists()
    assert numbers_in(lake.path) == [*range(60), *range(1000, 2000)]
    assert not any((lake.beside / "compacting").iterdir())
    assert list(compact(lake, target)) == []
    # What Spark repeats of a compacted batch does not come back.
    lake.land(5, Numbers(5))
    assert numbers_in(lake.path) == [*range(60), *range(1000, 2000)]


def test_a_lake_without_partitions_and_with_two_schemas(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", "w")
    lake.path.mkdir()
    for index in range(4):
        pq.write_table(pa.table({"number": [index]}), lake.path / f"a{index}.parquet")
        pq.write_table(
            pa.table({"number": [index], "more": ["x"]}), lake.path / f"b{index}.parquet"
        )
    (done,) = compact(lake)
    assert (done.directory, done.files_before, done.files_after) == (".", 8, 2)
    assert numbers_in(lake.path) == sorted([*range(4), *range(4)])


def test_a_directory_that_is_a_link_is_left_as_it_is(tmp_path: Path) -> None:
    lake = small_lake(tmp_path)
    (lake.path / "even=1").rename(tmp_path / "archive")
    (lake.path / "even=1").symlink_to(tmp_path / "archive")
    assert [done.directory for done in compact(lake)] == ["even=0"]
    assert (lake.path / "even=1").is_symlink()
    assert len(list((tmp_path / "archive").iterdir())) == 6
    assert numbers_in(lake.path) == list(range(60))


PIPELINE = """\
checkpoint = "check"
bootstrap = "h:1"
[[source]]
name = "clicks"
topics = ["clicks"]
[[sink]]
from = "clicks"
kind = "parquet"
path = "{path}"
"""


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_the_command_finds_a_lake_by_every_name_of_its_path(tmp_path: Path, scheme: str) -> None:
    lake = small_lake(tmp_path)
    file = tmp_path / "clicks.toml"
    file.write_text(PIPELINE.format(path=f"{scheme}{lake.path}"))
    told = CliRunner().invoke(pipeline, ["compact", str(file)])
    assert (told.exit_code, told.output.count("6 files of")) == (0, 2), told.output
    assert numbers_in(lake.path) == list(range(60))


def test_the_command_names_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    lake = small_lake(tmp_path)
    file = tmp_path / "clicks.toml"
    file.write_text(PIPELINE.format(path=lake.path))
    broken = lake.path / "even=0" / "broken.parquet"
    whole = next(file for file in broken.parent.iterdir())
    # No Parquet at all; and a page whose bytes are others, which is only found on reading it.
    for content in (b"nothing of the kind", whole.read_bytes().replace(b"PAR1", b"PAR1" * 2, 1)):
        broken.write_bytes(content)
        told = CliRunner().invoke(pipeline, ["compact", str(file)])
        assert told.exit_code == 1
        assert f"Error: {broken}: " in told.output
    broken.unlink()
    assert CliRunner().invoke(pipeline, ["compact", str(file)]).exit_code == 0
    assert numbers_in(lake.path) == list(range(60))


def test_an_old_directory_that_cannot_be_taken_away_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = small_lake(tmp_path)
    full = OSError(errno.ENOTEMPTY, "Directory not empty")
    refusals = iter([full, full, OSError(errno.EBUSY, "Device or resource busy")])

    def refuse(self: Path) -> None:
        raise next(refusals)

    monkeypatch.setattr(Path, "rmdir", refuse)
    with pytest.raises(OSError, match="busy"):
        list(compact(lake))
    monkeypatch.undo()
    recover(lake)
    assert numbers_in(lake.path) == list(range(60))
    assert not any((lake.beside / "compacting").iterdir())


def test_moments_written_as_int96_stay_the_moments_they_are(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", "w")
    lake.path.mkdir()
    moments = [datetime(9999, 12, 31, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC), None]
    column = pa.array(moments, pa.timestamp("us", tz="UTC"))
    inner = pa.StructArray.from_arrays([column], ["at"])
    rows = pa.table({"at": column, "inner": inner, "day": column.cast(pa.date32())})
    for name in ("a", "b"):
        file = lake.path / f"{name}.parquet"
        pq.write_table(rows, file, use_deprecated_int96_timestamps=True, store_schema=False)
    # Written since by a session that does not write INT96 any more.
    pq.write_table(rows, lake.path / "c.parquet", store_schema=False)
    (done,) = compact(lake)
    assert done.files_after == 1
    (file,) = lake.path.glob("*.parquet")
    assert pq.read_table(file).equals(pa.concat_tables([rows] * 3))


def test_a_file_landed_during_the_exchange_is_carried_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = small_lake(tmp_path)
    exchange = compacting.swap

    def late(one: Path, other: Path) -> None:
        pq.write_table(pa.table({"number": [int(one.name[-1]) + 600]}), one / "late.parquet")
        exchange(one, other)

    monkeypatch.setattr(compacting, "swap", late)
    list(compact(lake))
    assert numbers_in(lake.path) == [*range(60), 600, 601]


def test_a_batch_landed_while_the_replacement_is_built_is_in_it(tmp_path: Path) -> None:
    lake = small_lake(tmp_path)

    def compact_and_die() -> None:
        merge = compacting._merge

        def land_too(*arguments: Any) -> None:
            merge(*arguments)
            lake.land(6, Numbers(6))

        compacting._merge = land_too
        _die_after_first(compacting, "swap")
        list(compact(lake))

    dies(compact_and_die)
    assert numbers_in(lake.path) == list(range(70))
    lake.land(6, Numbers(6))  # Spark repeats it
    recover(lake)
    assert numbers_in(lake.path) == list(range(70))
    assert not any((lake.beside / "compacting").iterdir())


def test_nothing_is_landed_in_the_moment_of_the_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = small_lake(tmp_path)
    exchange, move = compacting.swap, lake_module._move
    seen = []

    def is_free(how: int) -> bool:
        descriptor = os.open(lake.beside, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True

    def swapping(one: Path, other: Path) -> None:
        seen.append(("exchange", is_free(fcntl.LOCK_SH)))
        exchange(one, other)

    def moving(source: Path, target: Path) -> None:
        seen.append(("land", is_free(fcntl.LOCK_EX)))
        # Others may land at the same time.
        assert is_free(fcntl.LOCK_SH)
        move(source, target)

    monkeypatch.setattr(compacting, "swap", swapping)
    monkeypatch.setattr(lake_module, "_move", moving)
    lake.land(6, Numbers(6))
    list(compact(lake))
    assert seen == [("land", False)] * 2 + [("exchange", False)] * 2
    assert is_free(fcntl.LOCK_EX)


def test_a_file_of_somebody_else_is_brought_over_by_whoever_starts_next(tmp_path: Path) -> None:
    lake = small_lake(tmp_path)

    def compact_and_die() -> None:
        exchange = compacting.swap

        def late(one: Path, other: Path) -> None:
            pq.write_table(pa.table({"number": [600]}), one / "late.parquet")
            exchange(one, other)
            killed()

        compacting.swap = late
        list(compact(lake))

    dies(compact_and_die)
    recover(lake)
    assert numbers_in(lake.path) == [*range(60), 600]
    # One that is at work is left alone.
    at_work = compact(lake)
    next(at_work)
    recover(lake)
    list(at_work)
    assert numbers_in(lake.path) == [*range(60), 600]


def _die_after_first(owner: Any, name: str) -> None:
    """In a child that dies: the first call of a function is its last deed."""
    done = getattr(owner, name)

    def then(*arguments: object, **more: object) -> None:
        done(*arguments, **more)
        killed()

    setattr(owner, name, then)


# In the order in which they happen: a file of the replacement, all of it, its note, the exchange,
# an old file gone, the old directory gone, the note gone, all done.
MOMENTS = [
    (pq.ParquetWriter, "write_batch"),
    (compacting, "_merge"),
    (compacting, "write_atomically"),
    (compacting, "swap"),
    (Path, "unlink"),
    (Path, "rmdir"),
    (compacting._Job, "finish"),
]


@pytest.mark.parametrize("moment", MOMENTS, ids=[name for _, name in MOMENTS])
def test_killed_at_any_moment_of_compaction_the_lake_is_whole(
    tmp_path: Path, moment: tuple[Any, str]
) -> None:
    lake = small_lake(tmp_path)

    def compact_and_die() -> None:
        _die_after_first(*moment)
        list(compact(lake))

    dies(compact_and_die)
    assert numbers_in(lake.path) == list(range(60))
    files = len(list((lake.path / "even=0").glob("[!.]*")))
    assert files == (6 if MOMENTS.index(moment) < 3 else 1)
    lake.land(6, Numbers(6))
    assert numbers_in(lake.path) == list(range(70))
    list(compact(lake))
    assert numbers_in(lake.path) == list(range(70))
    assert len(list(data_files(lake.path))) == 2
    assert not any((lake.beside / "compacting").iterdir())


def test_one_compaction_at_a_time(tmp_path: Path) -> None:
    lake = small_lake(tmp_path)
    one = compact(lake)
    next(one)
    with pytest.raises(Busy, match="is being compacted by another process"):
        list(compact(lake))
    list(one)
    assert list(compact(lake)) == []
    assert numbers_in(lake.path) == list(range(60))


def test_whoever_is_listing_when_a_directory_is_exchanged_finds_what_was_there(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = small_lake(tmp_path)
    there = set(os.listdir(lake.path / "even=0"))
    listing = os.scandir(lake.path / "even=0")  # opened now, read after the exchange
    found: set[str] = set()

    def read_meanwhile(seconds: float) -> None:
        assert seconds > 0
        found.update(entry.name for entry in listing)

    monkeypatch.setattr(clock, "sleep", read_meanwhile)
    assert [done.directory for done in compact(lake)] == ["even=0", "even=1"]
    assert len(there) == 6
    assert there <= found
    assert not any((lake.beside / "compacting").iterdir())


class Reader:
    """Another process that lists a lake and looks at it, again and again."""

    def __init__(self, clock: Clock, look: Callable[[Callable[[], None]], str]) -> None:
        """`look` calls what it is given when it has listed, and says what was wrong."""
        self._look = look
        self._listed = clock.listed = FORK.Value("i", 0)
        self._stop = FORK.Event()
        self._verdict = FORK.Queue()
        self._process = FORK.Process(target=self._read)
        self._process.start()

    def _read(self) -> None:
        verdict = ""
        while not self._stop.is_set():
            verdict = self._look(self._has_listed) or verdict
        self._verdict.put(self._look(self._has_listed) or verdict)

    def _has_listed(self) -> None:
        self._listed.value += 1

    def verdict(self) -> str:
        self._stop.set()
        verdict: str = self._verdict.get(timeout=60)
        self._process.join()
        return verdict


def land_and_compact(lake: Lake, landed: Any = None) -> None:
    for batch in range(4, 34, 3):
        list(compact(lake))
        for number in range(batch, batch + 3):
            lake.land(number, Numbers(number))
            if landed is not None:
                landed.value = (number + 1) * 10


def test_readers_meanwhile_find_every_row_once(tmp_path: Path, clock: Clock) -> None:
    """A reader that lists and opens files while they are landed and compacted.

    Not by `ds.dataset`: that looks up each listed name once more, and passes over what is gone.
    """
    lake = small_lake(tmp_path, batches=4)
    landed = FORK.Value("i", 40)

    def read(has_listed: Callable[[], None]) -> str:
        expected = set(range(landed.value))
        files = [
            directory / name
            for directory in (lake.path / "even=0", lake.path / "even=1")
            for name in os.listdir(directory)
            if not name.startswith(".")
        ]
        has_listed()
        try:
            found = [row for file in files for row in numbers_of(file)]
        except FileNotFoundError:
            return ""  # it had listed files that were compacted since, and reads again
        if len(found) != len(set(found)):
            return "a row twice"
        missing = sorted(expected - set(found))
        return f"missing: {missing}" if missing else ""

    reader = Reader(clock, read)
    land_and_compact(lake, landed)
    assert reader.verdict() == ""
    assert numbers_in(lake.path) == list(range(340))


def test_whoever_lists_sees_all_or_all(tmp_path: Path, clock: Clock) -> None:
    """A reader that lists again and again while directories are exchanged."""
    lake = small_lake(tmp_path, batches=4)

    def read(has_listed: Callable[[], None]) -> str:
        names = os.listdir(lake.path / "even=0")
        has_listed()
        seen = len([name for name in names if not name.startswith(".")])
        return "" if 1 <= seen <= 4 else f"{seen} files"

    reader = Reader(clock, read)
    land_and_compact(lake)
    assert reader.verdict() == ""
    assert numbers_in(lake.path) == list(range(340))
