"""Who is strained by moves, and who is slow, from what brokers publish."""

from tests.balance.frames import START_MS, Row, frame

from odradek.balance.latency import MINUTE_MS, SLOW_SCORE, BrokerHealth, Sample
from odradek.wire.telemetry import BrokerLoad, decode_frame

MS = 1000
HOUR = 60


def minute(number: int, p99_us: dict[int, int], rate: float = 2e6) -> list[Sample]:
    at_ms = START_MS + number * MINUTE_MS
    return [Sample(broker, at_ms, p99, rate, 0.5) for broker, p99 in p99_us.items()]


def after_an_hour() -> BrokerHealth:
    health = BrokerHealth()
    for number in range(HOUR):
        health.add(minute(number, {1: 20 * MS, 2: 20 * MS, 3: 20 * MS}))
    return health


def now(number: int) -> int:
    return START_MS + number * MINUTE_MS


def test_a_sample_is_what_a_frame_says_of_its_broker() -> None:
    load = BrokerLoad(produce_p99_us=7, net_in=30_000)
    made = Sample.of(decode_frame(frame(4, 0, {("t", 0): Row()}, load)))
    assert (made.broker, made.p99_us, made.bytes_in_s) == (4, 7, 2000.0)
    assert made.free_share == 0.4, "400 of 1000; the failed directory says nothing"


def test_three_times_the_usual_latency_is_strain_and_so_is_a_full_disk() -> None:
    health = after_an_hour()
    assert health.strained(now(HOUR)) == frozenset()
    health.add(minute(HOUR, {1: 90 * MS, 2: 101 * MS}))
    assert health.strained(now(HOUR)) == {2}, "under a tenth of a second is no strain"
    health.add([Sample(3, now(HOUR), 0, 0.0, 0.09)])
    assert health.strained(now(HOUR)) == {2, 3}
    assert health.strained(now(HOUR + 3)) == frozenset(), "what is old says nothing about now"


def test_latency_that_is_usual_for_a_broker_is_no_strain() -> None:
    health = BrokerHealth()
    for number in range(HOUR):
        health.add(minute(number, {1: 500 * MS}))
    assert health.strained(now(HOUR - 1)) == frozenset()


def slowness(p99_us: dict[int, int], rate: float = 2e6, minutes: int = SLOW_SCORE) -> BrokerHealth:
    health = after_an_hour()
    for number in range(HOUR, HOUR + minutes):
        health.add(minute(number, p99_us, rate))
        health.slow(now(number))
    return health


def test_a_broker_far_slower_than_itself_and_its_peers_is_slow_after_minutes() -> None:
    end = now(HOUR + SLOW_SCORE - 1)
    one = {1: 20 * MS, 2: 300 * MS, 3: 20 * MS}
    health = slowness(one)
    assert health.slow(end) == {2}
    before = end - MINUTE_MS
    assert slowness(one, minutes=SLOW_SCORE - 1).slow(before) == frozenset()
    for number in range(SLOW_SCORE):
        health.add(minute(HOUR + SLOW_SCORE + number, {1: 20 * MS, 2: 20 * MS, 3: 20 * MS}))
        health.slow(now(HOUR + SLOW_SCORE + number))
    assert health.slow(now(HOUR + 2 * SLOW_SCORE)) == frozenset(), "over"
    for other, rate in (
        ({1: 300 * MS, 2: 300 * MS, 3: 300 * MS}, 2e6),  # all of them: the load, or the network
        ({1: 20 * MS, 2: 190 * MS, 3: 20 * MS}, 2e6),  # not slow in absolute terms
        (one, 1e5),  # hardly any load
    ):
        assert slowness(other, rate).slow(end) == frozenset()


def test_without_an_hour_of_history_none_is_slow() -> None:
    health = BrokerHealth()
    for number in range(20):
        health.add(minute(number, {1: 1 * MS, 2: 900 * MS, 3: 1 * MS}))
        assert health.slow(now(number)) == frozenset()


def test_what_was_read_twice_counts_once() -> None:
    health = after_an_hour()
    again = after_an_hour()
    again.add([of for number in range(HOUR) for of in minute(number, {1: 9, 2: 9, 3: 9})])
    assert again == health
