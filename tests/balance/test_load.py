"""The load model: what is measured adds up, and what is not has an answer that says so."""

import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.balance.frames import TICK_MS, TICKS_PER_WINDOW, Row, frame

from odradek.balance.cpu import fit_cpu, non_negative_least_squares, served_by_brokers
from odradek.balance.frames import decode_frames
from odradek.balance.load import PLACEMENT, REPLICA_LOAD, load_table, peaks, replica_load
from odradek.balance.windows import broker_windows, partition_windows
from odradek.wire.telemetry import IN_SYNC, BrokerLoad

TICK_S = TICK_MS / 1000
FOLLOWS = IN_SYNC


def window(number: int) -> Iterable[int]:
    return range(number * TICKS_PER_WINDOW, (number + 1) * TICKS_PER_WINDOW)


def by_replica(replicas: pa.Table) -> dict[tuple[str, int, int], dict[str, Any]]:
    assert replicas.schema == REPLICA_LOAD
    return {(row["topic"], row["partition"], row["broker"]): row for row in replicas.to_pylist()}


def placed(*replicas: tuple[str, int, int], size: int = -1) -> pa.Table:
    rows = [
        {"topic": topic, "partition": partition, "broker": broker, "role": 0, "size": size}
        for topic, partition, broker in replicas
    ]
    return pa.Table.from_pylist(rows, PLACEMENT)


def test_a_hot_and_an_idle_partition_of_one_topic_are_distinguished() -> None:
    values = []
    for tick in [*window(0), *window(1), *window(2)]:
        rows = {
            ("t", 0): Row(15_000, 30_000, 15_000, 150, 15, size=1 << 20),
            ("t", 1): Row(size=1 << 20, role=FOLLOWS),
        }
        if tick % TICKS_PER_WINDOW == 0:
            rows["t", 2] = Row(size=500)
        values.append(frame(1, tick, rows))
        rows = {("t", 0): Row(0, 3_000, size=1 << 19, role=FOLLOWS), ("t", 1): Row(1_500)}
        values.append(frame(2, tick, rows))
    model = load_table(decode_frames(values))
    found = by_replica(model.replicas)
    hot = found["t", 0, 1]
    assert (hot["in"], hot["out_leader"], hot["messages"]) == (1_000, 3_000, 10)
    assert (hot["windows"], hot["coverage"], hot["source"]) == (3, 1.0, "measured")
    # The follower takes in what its leader does, has its own size, and serves what it served.
    follower = found["t", 0, 2]
    assert (follower["in"], follower["out_follower"], follower["size"]) == (1_000, 200, 1 << 19)
    assert found["t", 1, 1]["in"] == found["t", 1, 2]["in"] == 100
    assert found["t", 2, 1]["in"] == 0 and found["t", 2, 1]["size"] == 500
    assert hot["cpu_leader"] > 10 * found["t", 1, 2]["cpu_leader"] > 0
    assert model.coverage == 1.0
    brokers = {row["broker"]: row for row in model.brokers.to_pylist()}
    assert brokers[1]["cores"] == 4.0 and brokers[1]["disk_used"] == 600
    assert brokers[1]["failed_directories"] == ["/broken"] and brokers[1]["source"] == "measured"


def test_the_peak_is_levelled_and_adds_up() -> None:
    """Forty windows; in four of them a has its evening, while b has its peak in another."""
    values, written = [], dict.fromkeys(range(40), 0)
    for number in range(40):
        a = 3_000 if 20 <= number < 24 else 150
        b = 900 if number == 5 else 300
        for tick in window(number):
            values.append(frame(1, tick, {("a", 0): Row(a)}))
            values.append(frame(2, tick, {("b", 0): Row(b)}))
            written[number] += a + b
    decoded = decode_frames(values)
    peak = by_replica(load_table(decoded).replicas)
    assert (peak["a", 0, 1]["in"], peak["b", 0, 2]["in"]) == (200, 20)
    total = sum(written[number] for number in range(20, 24)) / (4 * 300)
    assert peak["a", 0, 1]["in"] + peak["b", 0, 2]["in"] == total
    mean = by_replica(load_table(decoded, rule="mean").replicas)
    assert mean["a", 0, 1]["in"] == round((36 * 150 + 4 * 3_000) / 40 / TICK_S)


def test_leadership_that_moves_and_time_without_rows() -> None:
    """No load is lost or counted twice by an election, and a partition that frames leave out had
    no traffic in that time."""
    values = []
    for number in range(4):
        leader = 1 if number < 2 else 2
        for tick in window(number):
            is_active = tick % 2 == 0
            for broker in (1, 2):
                row = Row(3_000) if broker == leader else Row(role=FOLLOWS)
                values.append(frame(broker, tick, {("t", 0): row} if is_active else {}))
    found = by_replica(load_table(decode_frames(values)).replicas)
    assert found["t", 0, 1]["in"] == found["t", 0, 2]["in"] == 100


def test_windows_give_the_same_rows_in_any_order_and_in_any_chunks() -> None:
    """As a lake gives them, with a leadership that moves inside a window."""
    values = []
    for tick in (tick for number in range(5) for tick in window(number)):
        for broker in (1, 2):
            leads = (tick < 50) == (broker == 1)
            roles = {("a", 0): leads, ("a", 7): not leads, ("b", 7): leads}
            rows = {
                tp: Row(1_000 + 10 * tp[1] + tick, 500, messages=tick, size=tick * broker)
                if leads
                else Row(bytes_out=30, size=tick * broker, role=FOLLOWS)
                for tp, leads in roles.items()
            }
            values.append(frame(broker, tick, rows))
    decoded = decode_frames(values)
    partitions, brokers = partition_windows(decoded), broker_windows(decoded)
    served = served_by_brokers(partitions)
    # Broker 2 follows a-0 and b-7, and broker 1 a-7, until the leaders change.
    assert served.slice(0, 2).select(["followed_bytes", "followed_messages"]).to_pylist() == [
        {"followed_bytes": 20 * 1_070 + 190, "followed_messages": 190},
        {"followed_bytes": 20 * 2_070 + 2 * 190, "followed_messages": 2 * 190},
    ]
    expected = replica_load(partitions, peaks(served, brokers), growth_h=0)
    assert expected["windows"].to_pylist() == [5] * 6
    assert expected["size"].to_pylist()[:2] == [99, 198]
    order = np.random.default_rng(1).permutation(partitions.num_rows)
    shuffled = partitions.take(order)
    chunks = [shuffled.slice(begin, 4) for begin in range(0, shuffled.num_rows, 4)]
    given_so = pa.concat_tables(chunks)
    assert served_by_brokers(given_so).equals(served)
    assert replica_load(given_so, peaks(served, brokers), growth_h=0).equals(expected)


def test_there_is_always_an_answer() -> None:
    """Broker 2 is silent, broker 3 has only just been heard of."""
    values = []
    for tick in [*window(0), *window(1), *window(2)]:
        rows = {("t", each): Row(1_500, size=1_000 * (each + 1)) for each in range(3)}
        values.append(frame(1, tick, rows))
    placement = pa.concat_tables(
        [
            placed(("t", 0, 1), ("t", 1, 1), ("t", 2, 1), ("t", 0, 2)),
            placed(("t", 3, 2), ("alone", 0, 2), size=4_000),
        ]
    )
    model = load_table(decode_frames(values), placement, growth_h=0)
    found = by_replica(model.replicas)
    assert found["t", 0, 1]["source"] == "measured"
    silent = found["t", 0, 2]
    assert (silent["source"], silent["in"], silent["size"]) == ("replica", 100, 1_000)
    assert silent["coverage"] == silent["windows"] == 0
    # 100 bytes/s for 1,000, 2,000 and 3,000 bytes: the median is 0.05 a byte.
    guessed = found["t", 3, 2]
    assert (guessed["source"], guessed["in"], guessed["size"]) == ("topic", 200, 4_000)
    alone = found["alone", 0, 2]
    assert (alone["source"], alone["in"], alone["size"]) == ("size", 0, 4_000)
    assert model.coverage == 3 / 6
    nothing = load_table(decode_frames([]), placement)
    assert set(nothing.replicas["source"].to_pylist()) == {"size"}
    assert nothing.coverage == 0 and nothing.brokers.num_rows == 0


def test_estimated_frames_make_estimated_rows() -> None:
    values = [
        frame(1, tick, {("t", 0): Row(1_500, size=10)}, BrokerLoad(), is_estimated=True)
        for tick in [*window(0), *window(1)]
    ]
    model = load_table(decode_frames(values))
    row = by_replica(model.replicas)["t", 0, 1]
    assert (row["source"], row["in"], row["cpu_leader"]) == ("estimated", 100, 0)
    assert model.brokers["source"].to_pylist() == ["estimated"]


def test_disk_is_the_latest_size_and_its_growth() -> None:
    values = []
    for number in range(13):
        for tick in window(number):
            rows = {("up", 0): Row(size=10_000 + 100 * tick), ("down", 0): Row(size=9_000 - tick)}
            values.append(frame(1, tick, rows))
    decoded = decode_frames(values)
    now = by_replica(load_table(decoded, growth_h=0).replicas)
    later = by_replica(load_table(decoded, growth_h=6).replicas)
    latest = 10_000 + 100 * (13 * TICKS_PER_WINDOW - 1)
    assert now["up", 0, 1]["size"] == latest
    assert later["up", 0, 1]["size"] == latest + 100 * 6 * 3_600_000 // TICK_MS
    assert later["down", 0, 1]["size"] == now["down", 0, 1]["size"]


def cpu_frames(noise: float = 0.0, windows: int = 30) -> list[bytes]:
    """Two brokers whose times are made by known costs."""
    rng = random.Random(7)
    values = []
    for number in range(windows):
        amounts = [rng.randrange(1, 10**7) for _ in range(2)]
        for tick in window(number):
            for broker in (1, 2):
                mine, other = amounts[broker - 1], amounts[2 - broker]
                messages, requests = mine // (50 + number), mine // (3000 + 100 * number % 700)
                produce_s = mine * 2e-9 + messages * 3e-7 + requests * 5e-5
                consumer_s, follower_s = 2 * mine * 1e-9, mine * 0.5e-9
                other_s = other * 1.5e-9 + 0.2
                if noise:
                    produce_s = rng.random() * noise
                load = BrokerLoad(
                    8.0,
                    produce_s + consumer_s + follower_s + other_s,
                    *(produce_s, consumer_s, follower_s, other_s),
                )
                rows = {
                    ("t", broker): Row(mine, 2 * mine, mine, messages, requests),
                    ("t", 3 - broker): Row(role=FOLLOWS),
                }
                values.append(frame(broker, tick, rows, load))
    return values


def test_the_cost_of_bytes_records_and_requests_is_found_again() -> None:
    decoded = decode_frames(cpu_frames())
    (cost,) = fit_cpu(
        served_by_brokers(partition_windows(decoded)), broker_windows(decoded)
    ).values()
    assert cost.r2 is not None and cost.r2 > 0.999 and cost.windows == 60
    assert cost.byte_in == pytest.approx(2e-9, rel=1e-3)
    assert cost.message == pytest.approx(3e-7, rel=1e-3)
    assert cost.byte_to_follower == pytest.approx(0.5e-9, rel=1e-3)
    assert cost.followed_byte == pytest.approx(1.5e-9, rel=1e-3)
    assert cost.request + cost.byte_out * 2_000 == pytest.approx(5e-5 + 2e-6, rel=0.05)


@pytest.mark.parametrize("values", [cpu_frames(noise=5.0), cpu_frames(windows=1)])
def test_without_a_fit_fixed_weights_share_out_the_time(values: list[bytes]) -> None:
    decoded = decode_frames(values)
    partitions, brokers = partition_windows(decoded), broker_windows(decoded)
    (cost,) = fit_cpu(served_by_brokers(partitions), brokers).values()
    assert cost.r2 is None
    assert cost.byte_in / cost.byte_out == pytest.approx(0.7 / 0.15)
    written = sum(partitions["bytes_in"].to_pylist())
    # Each byte is written once, read twice, sent to a follower and taken in by it.
    spent = cost.byte_in + 2 * cost.byte_out + cost.byte_to_follower + cost.followed_byte
    assert spent * written == pytest.approx(sum(brokers["cpu_s"].to_pylist()))


@given(st.integers(1, 5), st.integers(1, 12), st.integers(0, 2**32))
@settings(deadline=None, max_examples=60)
def test_least_squares_without_negative_parts(columns: int, rows: int, seed: int) -> None:
    """What makes it the best there is: no allowed step makes the error smaller."""
    rng = np.random.default_rng(seed)
    matrix, wanted = rng.normal(size=(rows, columns)), rng.normal(size=rows)
    found = non_negative_least_squares(matrix, wanted)
    gradient = matrix.T @ (wanted - matrix @ found)
    assert (found >= 0).all()
    assert (gradient <= 1e-6).all()
    assert np.abs(gradient * found).max() <= 1e-6 * max(1.0, float(found.max()))
