"""Frames to tables and windows: exact sums, whatever arrives, how often and in what order."""

import logging
import random
import struct

import pytest
from tests.balance.frames import START_MS, TICKS_PER_WINDOW, Row, frame

from odradek.balance.frames import AMOUNT_MAX, SAID_MAX, decode_frames
from odradek.balance.windows import broker_windows, partition_windows
from odradek.wire.crc32c import crc32c
from odradek.wire.telemetry import IN_SYNC, BrokerLoad

WINDOW_MS = 300_000


def two_windows() -> list[bytes]:
    """Of two brokers: partition 0 on both, partition 1 only in the first frame."""
    values = []
    for tick in range(2 * TICKS_PER_WINDOW):
        first = {("t", 0): Row(100, 10, 90, 5, 2, size=1_000 + tick, log_end=tick)}
        if tick == 0:
            first["t", 1] = Row(7, size=7)
        values.append(frame(1, tick, first, BrokerLoad(4.0, 1.5, net_in=100, isr_shrinks=1)))
        values.append(frame(2, tick, {("t", 0): Row(size=1_000 + tick, role=IN_SYNC)}))
    return values


def test_sums_are_exact_and_do_not_depend_on_order_or_repetition() -> None:
    values = two_windows()
    decoded = decode_frames(values)
    windows, brokers = partition_windows(decoded), broker_windows(decoded)
    found = {
        (row["window_ms"] - START_MS, row["partition"], row["broker"]): row
        for row in windows.to_pylist()
    }
    assert found.keys() == {
        *((0, 0, 1), (WINDOW_MS, 0, 1)),
        *((0, 0, 2), (WINDOW_MS, 0, 2)),
        (0, 1, 1),
    }
    row = found[0, 0, 1]
    assert (row["bytes_in"], row["bytes_out"], row["follower_out"]) == (2_000, 200, 1_800)
    assert (row["messages"], row["requests"], row["leads"]) == (100, 40, True)
    assert (row["size"], row["log_end"], row["directory"]) == (1_019, 19, "/disk")
    assert found[WINDOW_MS, 0, 2]["leads"] is False
    one = brokers.filter(brokers["broker"].to_numpy() == 1).to_pylist()
    assert [(row["seconds"], row["cpu_s"], row["net_in"]) for row in one] == [(300, 30, 2000)] * 2
    assert [(row["disk_capacity"], row["disk_used"]) for row in one] == [(1000, 600)] * 2
    assert one[0]["failed_directories"] == ["/broken"] and one[0]["isr_shrinks"] == 20

    random.Random(1).shuffle(values)
    again = decode_frames(values + values[:30])
    assert partition_windows(again).equals(windows) and broker_windows(again).equals(brokers)


def test_a_tick_written_twice_counts_once_and_a_late_one_where_it_ends() -> None:
    """A frame that failed, or seemed to, and the next, which has its counts too."""
    values = [
        frame(1, 0, {("t", 0): Row(10)}),
        frame(1, 1, {("t", 0): Row(20)}),
        frame(1, 1, {("t", 0): Row(50)}, length=2 * TICKS_PER_WINDOW),
        frame(1, 0, {("t", 0): Row(1000)}, incarnation=2),
    ]
    decoded = decode_frames(values)
    sums = partition_windows(decoded)
    assert sums["bytes_in"].to_pylist() == [1010, 50]
    assert broker_windows(decoded)["seconds"].to_pylist() == [30.0, 600.0]


def test_what_is_no_frame_is_skipped_and_said(caplog: pytest.LogCaptureFixture) -> None:
    good = frame(1, 0, {("t", 0): Row(10)})
    # The row's topic, which is the first thing in the columns.
    at = len(good) - 66
    for value in (99, -1):
        lie = good[:at] + struct.pack("<i", value) + good[at + 4 :]
        lie = lie[:60] + struct.pack("<I", crc32c(lie[:60] + lie[64:])) + lie[64:]
        with caplog.at_level(logging.WARNING):
            decoded = decode_frames([lie, None, b"", good, good[:-1]])
        assert (decoded.rows.num_rows, decoded.brokers.num_rows, decoded.skipped) == (1, 1, 4)
    assert any("topic 99 of 1" in line for line in caplog.messages)
    assert any("topic of -1" in line for line in caplog.messages)
    empty = decode_frames([])
    assert partition_windows(empty).num_rows == broker_windows(empty).num_rows == 0


@pytest.mark.parametrize("name", ["bytes_in", "size", "requests"])
def test_a_frame_beyond_belief_is_skipped(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Two of the largest numbers added up would be less than nothing."""
    forged = [frame(1, tick, {("t", 0): Row(**{name: 2**62})}) for tick in range(4)]
    good = frame(2, 0, {("t", 0): Row(10, size=AMOUNT_MAX)})
    with caplog.at_level(logging.WARNING):
        decoded = decode_frames([*forged, good])
    assert (decoded.rows.num_rows, decoded.skipped) == (1, 4)
    assert f"{name} of {2**62}" in caplog.text


def test_a_flood_of_forged_frames_is_counted_and_not_all_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        decoded = decode_frames(b"ODRT" + bytes([n % 256]) * 100 for n in range(10_000))
    assert decoded.skipped == 10_000
    assert len(caplog.messages) == SAID_MAX
