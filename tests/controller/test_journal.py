"""The journal answers what happened to a partition and why, and stays bounded."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from odradek.controller.journal import (
    EntryKind,
    Journal,
    RotatingFile,
    describe,
    format_partitions,
    format_state,
    line_of,
    parse_state,
    read_lines,
)
from odradek.log.disk import RealDisk
from odradek.store.payloads import LeaderAndIsr
from odradek.wire.topics import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Lines:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.full = False

    def write(self, lines: bytes) -> None:
        if self.full:
            raise OSError("no space left")
        self.written.append(lines)

    def close(self) -> None:
        self.written.append(b"closed")


def filled(journal: Journal) -> Journal:
    journal.controller_epoch = 7
    journal.cause = "BrokerChange dead=[2]"
    journal.record(EntryKind.PARTITION, before="ONLINE", after="OFFLINE", partition=T0)
    journal.record(EntryKind.REPLICA, before="ONLINE", after="OFFLINE", partition=T1, broker=2)
    journal.record(EntryKind.REQUEST, after="LeaderAndIsr", broker=3, partitions=(T0, U0))
    journal.record(EntryKind.DELETION, after="started", topic="u")
    journal.record(EntryKind.FAILURE, partition=T0, why='no replica "eligible"\n')
    return journal


def test_history_is_what_concerns_the_partition() -> None:
    journal = filled(Journal(lambda: 1234))
    assert [describe(entry) for entry in journal.history(T0)] == [
        "partition t-0: ONLINE -> OFFLINE [BrokerChange dead=[2]]",
        "request to broker 3: LeaderAndIsr (2 partitions) [BrokerChange dead=[2]]",
        'failure t-0:  [no replica "eligible"\n]',
    ]
    assert [describe(entry) for entry in journal.history(T1)] == [
        "replica t-1 on 2: ONLINE -> OFFLINE [BrokerChange dead=[2]]"
    ]
    assert [describe(entry) for entry in journal.history(U0)] == [
        "request to broker 3: LeaderAndIsr (2 partitions) [BrokerChange dead=[2]]",
        "deletion u: started [BrokerChange dead=[2]]",
    ]
    assert {(entry.time_ms, entry.controller_epoch) for entry in journal.entries()} == {(1234, 7)}


def test_lines_are_json_and_can_be_read_back() -> None:
    journal = filled(Journal(lambda: 1234))
    lines = [line_of(entry) for entry in journal.entries()]
    assert json.loads(lines[0]) == {
        "sequence": 1,
        "time": 1234,
        "epoch": 7,
        "kind": "partition",
        "partition": "t-0",
        "from": "ONLINE",
        "to": "OFFLINE",
        "why": "BrokerChange dead=[2]",
    }
    assert list(read_lines(lines)) == list(journal.entries())
    assert list(read_lines([*lines[:2], lines[2][:20]])) == list(journal.entries())[:2]
    damaged = ["\ufffd", "5", "[]", "null", "{}", lines[0].replace('"kind":', '"kind":0,"x":')]
    assert list(read_lines([*damaged, lines[2]])) == list(journal.entries())[2:3]
    torn = [lines[0], lines[1][:20] + "\n", *lines[2:]]
    assert list(read_lines(torn)) == [*list(journal.entries())[:1], *list(journal.entries())[2:]]


def test_memory_is_bounded() -> None:
    journal = Journal(lambda: 0, entries_max=3)
    for number in range(10):
        journal.record(EntryKind.CONTROLLER, after=str(number))
    assert [entry.after for entry in journal.entries()] == ["7", "8", "9"]
    assert journal.statistics() == {"recorded": 10, "in_memory": 3, "sink_failures": 0}


def test_one_write_for_each_flush_and_a_full_disk_is_survived() -> None:
    sink = Lines()
    journal = filled(Journal(lambda: 0, sink=sink))
    assert sink.written == []
    journal.flush()
    journal.flush()
    assert len(sink.written) == 1
    assert sink.written[0].count(b"\n") == 5
    sink.full = True
    journal.record(EntryKind.CONTROLLER, after="lost")
    journal.flush()
    assert journal.statistics()["sink_failures"] == 1
    sink.full = False
    journal.record(EntryKind.CONTROLLER, after="kept")
    journal.close()
    assert b"kept" in sink.written[1]
    assert sink.written[2] == b"closed"


def test_followers_see_each_entry() -> None:
    journal, seen = Journal(lambda: 0), []
    journal.listen(lambda entry: seen.append(entry.after))
    journal.record(EntryKind.CONTROLLER, after="elected")
    assert seen == ["elected"]


def test_files_rotate_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    sink = RotatingFile(RealDisk(), str(path), bytes_max=10, files_max=3)
    for text in (b"one\n", b"two\n", b"three\n", b"four\n", b"five six seven\n", b"eight\n"):
        sink.write(text)
    sink.close()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {
        "journal": b"eight\n",
        "journal.1": b"five six seven\n",
        "journal.2": b"four\n",
    }
    again = RotatingFile(RealDisk(), str(path), bytes_max=10, files_max=3)
    again.write(b"x\n")
    again.close()
    assert path.read_bytes() == b"eight\nx\n"


def test_what_a_crash_tore_does_not_tear_the_next_line(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"one\ntw")
    sink = RotatingFile(RealDisk(), str(path))
    sink.write(b"three\n")
    sink.write(b"four\n")
    sink.close()
    assert path.read_bytes() == b"one\ntw\nthree\nfour\n"


def test_a_single_file_starts_over(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    sink = RotatingFile(RealDisk(), str(path), bytes_max=5, files_max=1)
    sink.write(b"one\n")
    sink.write(b"two\n")
    sink.close()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"journal": b"two\n"}


def test_entries_are_numbered() -> None:
    journal = filled(Journal(lambda: 1234))
    numbers = [entry.sequence for entry in journal.entries()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert [entry.sequence for entry in read_lines(map(line_of, journal.entries()))] == numbers


@given(
    st.builds(
        LeaderAndIsr,
        st.integers(-2, 2**31 - 1),
        st.integers(0, 2**31 - 1),
        st.lists(st.integers(0, 2**31 - 1)).map(tuple),
        st.just(1),
    )
)
def test_states_can_be_read_back(state: LeaderAndIsr) -> None:
    assert parse_state(format_state(state)) == (state.leader, state.leader_epoch, state.isr)


def test_text_that_is_no_state_is_none() -> None:
    assert parse_state("ONLINE") is None
    assert parse_state("leader=1 epoch=2 isr=[1") is None


def test_a_long_list_of_partitions_is_abbreviated() -> None:
    tps = [TopicPartition("t", number) for number in range(1000)]
    assert format_partitions(tps[:2]) == "t-0,t-1"
    assert format_partitions(tps).endswith("t-18,t-19 and 980 more")
