"""Leader epochs: the rules of docs/spec/controller-and-replication.md section 5.2 against a
plain model, and the file."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.checkpoints import CorruptCheckpoint
from odradek.log.epochs import LeaderEpochs

NAME = "leader-epoch-checkpoint"


def filled(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, start in entries:
        epochs.assign(epoch, start)
    return epochs


def test_an_append_in_the_same_epoch_changes_nothing() -> None:
    epochs = filled((1, 10), (1, 11), (1, 10))
    assert epochs.entries == [(1, 10)]


def test_a_lower_offset_moves_the_start_of_the_latest_epoch() -> None:
    assert filled((1, 10), (1, 7)).entries == [(1, 7)]


def test_what_contradicts_the_new_entry_goes() -> None:
    assert filled((1, 10), (2, 20), (3, 30), (2, 25)).entries == [(1, 10), (2, 25)]
    assert filled((1, 10), (2, 20), (3, 30), (4, 20)).entries == [(1, 10), (4, 20)]
    assert filled((1, 10), (2, 20), (3, 5)).entries == [(3, 5)]
    assert filled((5, 10), (2, 20)).entries == [(2, 20)]


@pytest.mark.parametrize(("epoch", "offset"), [(-1, 0), (0, -1)])
def test_negative_entries_are_refused(epoch: int, offset: int) -> None:
    with pytest.raises(ValueError):
        LeaderEpochs().assign(epoch, offset)
    with pytest.raises(ValueError):
        LeaderEpochs().begin(epoch, offset)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),  # before everything known: labelled with itself
        (2, (2, 20)),
        (3, (2, 20)),  # never seen: labelled with the largest below
        (4, (4, 30)),
        (6, (6, 99)),  # the latest ends with the log
        (7, (-1, -1)),
    ],
)
def test_where_an_epoch_ended(asked: int, answer: tuple[int, int]) -> None:
    assert filled((2, 10), (4, 20), (6, 30)).end_offset_for(asked, 99) == answer


def test_an_empty_cache_knows_nothing() -> None:
    assert LeaderEpochs().end_offset_for(0, 5) == (-1, -1)
    assert LeaderEpochs().latest_epoch is None
    assert LeaderEpochs().epoch_for_offset(3) is None


def test_the_epoch_of_an_offset() -> None:
    epochs = filled((2, 10), (4, 20))
    assert [epochs.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 99)] == [
        None,
        2,
        2,
        4,
        4,
    ]


def test_truncation_from_the_end() -> None:
    epochs = filled((2, 10), (4, 20), (6, 30))
    epochs.truncate_from_end(31)
    assert epochs.entries == [(2, 10), (4, 20), (6, 30)]
    epochs.truncate_from_end(20)
    assert epochs.entries == [(2, 10)]
    epochs.truncate_from_end(-1)
    assert epochs.entries == [(2, 10)]
    epochs.truncate_from_end(0)
    assert epochs.entries == []


def test_truncation_from_the_start_keeps_the_epoch_that_spans_it() -> None:
    epochs = filled((2, 10), (4, 20), (6, 30))
    epochs.truncate_from_start(9)
    assert epochs.entries == [(2, 10), (4, 20), (6, 30)]
    epochs.truncate_from_start(25)
    assert epochs.entries == [(4, 25), (6, 30)]
    epochs.truncate_from_start(30)
    assert epochs.entries == [(6, 30)]
    epochs.truncate_from_start(50)
    assert epochs.entries == [(6, 50)]


Operation = tuple[str, int, int]
operations = st.lists(
    st.tuples(st.sampled_from(["assign", "end", "start"]), st.integers(0, 12), st.integers(0, 60)),
    max_size=30,
)


def model(operations: list[Operation]) -> list[tuple[int, int]]:
    """The sentences of section 5.2, word by word, on a plain list."""
    entries: list[tuple[int, int]] = []
    for kind, epoch, offset in operations:
        if kind == "assign":
            if entries and entries[-1][0] == epoch and entries[-1][1] <= offset:
                continue
            while entries and (entries[-1][0] >= epoch or entries[-1][1] >= offset):
                entries.pop()
            entries.append((epoch, offset))
        elif kind == "end":
            entries = [entry for entry in entries if entry[1] < offset]
        else:
            gone = [entry for entry in entries if entry[1] <= offset]
            entries = [(e, offset) for e, _ in gone[-1:]] + entries[len(gone) :]
    return entries


@given(operations)
def test_any_history_follows_the_model_and_rises(history: list[Operation]) -> None:
    epochs = LeaderEpochs()
    for kind, epoch, offset in history:
        if kind == "assign":
            epochs.assign(epoch, offset)
        elif kind == "end":
            epochs.truncate_from_end(offset)
        else:
            epochs.truncate_from_start(offset)
    entries = epochs.entries
    assert entries == model(history)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))
    for asked in range(-1, 14):
        found, end = epochs.end_offset_for(asked, 1000)
        assert (found == -1) == (end == -1)
        assert found <= max(asked, -1)


def test_the_file_is_kafkas(tmp_path: Path) -> None:
    path = tmp_path / NAME
    epochs = LeaderEpochs(path)
    epochs.assign(0, 0)
    epochs.assign(3, 120)
    assert path.read_bytes() == b"0\n2\n0 0\n3 120\n"
    epochs.truncate_from_start(5)
    assert LeaderEpochs(path).entries == [(0, 5), (3, 120)]
    epochs.truncate_from_end(120)
    assert LeaderEpochs(path).entries == [(0, 5)]
    epochs.clear()
    assert path.read_bytes() == b"0\n0\n"
    assert LeaderEpochs(path).entries == []


def test_a_reign_is_written_with_its_first_record(tmp_path: Path) -> None:
    path = tmp_path / NAME
    epochs = LeaderEpochs(path)
    epochs.begin(1, 0)
    assert not path.exists()
    epochs.assign(1, 0)
    epochs.begin(2, 7)
    assert epochs.end_offset_for(1, 7) == (1, 7)
    assert LeaderEpochs(path).entries == [(1, 0)]
    epochs.begin(3, 7)
    epochs.assign(3, 7)
    assert LeaderEpochs(path).entries == [(1, 0), (3, 7)]
    epochs.begin(4, 9)
    epochs.truncate_from_end(8)
    assert LeaderEpochs(path).entries == epochs.entries == [(1, 0), (3, 7)]


def test_what_an_epoch_replaces_is_gone_from_the_disk_at_once(tmp_path: Path) -> None:
    path = tmp_path / NAME
    epochs = LeaderEpochs(path)
    epochs.begin(1, 0)
    epochs.begin(5, 50)
    assert LeaderEpochs(path).entries == []
    epochs.flush()
    assert LeaderEpochs(path).entries == [(1, 0), (5, 50)]
    epochs.begin(6, 100)
    epochs.begin(7, 100)  # in the place of one that was never written
    assert LeaderEpochs(path).entries == [(1, 0), (5, 50)]
    written = path.stat().st_ino
    epochs.truncate_from_end(100)
    assert epochs.entries == [(1, 0), (5, 50)]
    assert path.stat().st_ino == written, "that was not on disk: there is nothing to write"
    epochs.begin(4, 120)
    assert LeaderEpochs(path).entries == epochs.entries == [(1, 0), (4, 120)]


def test_no_file_or_an_empty_one_is_an_empty_cache(tmp_path: Path) -> None:
    path = tmp_path / NAME
    assert LeaderEpochs(path).entries == []
    path.write_bytes(b"")
    assert LeaderEpochs(path).entries == []


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"0\n2\n0 0\n",
        b"0\n1\n0 0\n1 5\n",
        b"0\n1\n0\n",
        b"0\n1\n0 0 0\n",
        b"0\n1\n0 -5\n",
        b"0\n1\n\n0 0\n",
        b"\0" * 64,
        b"0\n1\n\xff 0\n",
        b"0\nx\n",
    ],
)
def test_a_damaged_file_is_a_failed_disk(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / NAME
    path.write_bytes(data)
    with pytest.raises(CorruptCheckpoint):
        LeaderEpochs(path)
