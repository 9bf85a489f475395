"""What is measured: functions that do something to a system and give figures by name."""

import statistics
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Self

from tests.interop.harness.members import wait_until

from benchmarks.apache_kafka.load import (
    MEGABYTE,
    PARTITIONS,
    Sending,
    busy_threads,
    consume_in_c_megabytes_per_s,
    consume_megabytes_per_s,
    crowd_megabytes_per_s,
    payload,
    produce_megabytes_per_s,
    small_records_per_s,
    synchronous_ms,
    transactions,
)
from benchmarks.apache_kafka.systems import IDS, System
from odradek.client import Blocking, NewTopic, check

Figures = dict[str, float]

MEGABYTES = 300
RECORDS = MEGABYTES * MEGABYTE // 1024
SOME_MEGABYTES = 100
CROWD, CROWD_RECORDS = 100, 500
TRANSACTIONS = {100: 100, 10_000: 10}  # how many records, how many transactions
C_WARM_RUNS, C_RUNS = 2, 5
BUSY_THREADS = 15
IN_SYNC_TIMEOUT_S = 180
SMALL_RECORDS = 200_000
SYNCHRONOUS = 1000
MANY_PARTITIONS, TOPICS_OF_MANY = 1000, 5
FIRST_TIMEOUT_S = 180
# A client that looks for the new leader at once, so that its own pauses (a second and more, as it
# comes) are not what is measured.
EAGER = {
    "linger.ms": 0,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 10,
    "topic.metadata.refresh.interval.ms": 20,
}


def create(system: System, topic: str, partitions: int, replicas: Sequence[int] = ()) -> None:
    new = NewTopic(topic, partitions=partitions, replication_factor=len(IDS))
    if replicas:
        new = NewTopic(topic, assignment=dict.fromkeys(range(partitions), replicas))
    with Blocking(system.bootstrap_servers, timeout_s=120) as client:
        check(client.run(client.admin.create_topics([new])))
    wait_until(lambda: is_led(system, topic, partitions), f"leaders of {topic}", FIRST_TIMEOUT_S)


def is_led(system: System, topic: str, partitions: int) -> bool:
    """Every running broker names a running leader for every partition."""
    running = system.running()
    for broker in running:
        known = system.partitions(topic, broker)
        if len(known) != partitions or any(part.leader_id not in running for part in known):
            return False
    return True


def start(system: System) -> Figures:
    """From nothing to the first acknowledged record, and what the idle cluster takes."""
    began = time.perf_counter()
    system.start()
    create(system, "first", PARTITIONS)
    Sending(system.bootstrap_servers).send("first", [b"x"], 1)
    took = time.perf_counter() - began
    return {"start s": took, "memory idle MB": system.memory_bytes() / MEGABYTE}


class Processor:
    """What the brokers took of the processors in the block, per megabyte of the load."""

    def __init__(self, system: System) -> None:
        self._system = system

    def __enter__(self) -> Self:
        self._start = self._system.processor_seconds()
        return self

    def __exit__(self, *_: object) -> None:
        self._took = self._system.processor_seconds() - self._start

    def ms_per_megabyte(self, megabytes: float) -> float:
        return self._took * 1000 / megabytes


def throughput(system: System) -> Figures:
    """Producing and consuming on a warm cluster: the same load goes first, uncounted."""
    servers = system.bootstrap_servers
    figures: Figures = {}
    for topic, codec in (("plain", "none"), ("lz4", "lz4")):
        create(system, topic, PARTITIONS)
        figures |= produced(system, topic, codec, {"compression.type": codec})
    figures["memory loaded MB"] = system.memory_bytes() / MEGABYTE
    with Processor(system) as processor:
        figures["consume MB/s"] = consume_megabytes_per_s(servers, "plain", RECORDS, 1024)
    figures["consume ms/MB"] = processor.ms_per_megabyte(MEGABYTES)
    create(system, "small", PARTITIONS)
    small_records_per_s(servers, "small", SMALL_RECORDS)
    figures["small records/s"] = small_records_per_s(servers, "small", SMALL_RECORDS)
    middle, late = synchronous_ms(servers, "small", SYNCHRONOUS)
    figures["synchronous p50 ms"], figures["synchronous p99 ms"] = middle, late
    return figures


def produced(
    system: System,
    topic: str,
    name: str,
    settings: Mapping[str, object],
    megabytes: int = MEGABYTES,
) -> Figures:
    """Megabytes per second, and the brokers' processor time for one, the second time."""
    servers = system.bootstrap_servers
    produce_megabytes_per_s(servers, topic, megabytes, settings)
    with Processor(system) as processor:
        rate = produce_megabytes_per_s(servers, topic, megabytes, settings)
    cost = processor.ms_per_megabyte(megabytes)
    return {f"produce {name} MB/s": rate, f"produce {name} ms/MB": cost}


def c_consume(system: System) -> Figures:
    """With librdkafka's own consumer in C: what goes first is not counted. Then the same while
    other programs want the processors, too."""
    create(system, "in-c", PARTITIONS)
    produce_megabytes_per_s(system.bootstrap_servers, "in-c", MEGABYTES, {})
    for _ in range(C_WARM_RUNS):
        consume_in_c_megabytes_per_s(system.bootstrap_servers, "in-c", RECORDS)
    figures = consumed_in_c(system, "C consume")
    with busy_threads(BUSY_THREADS):
        return figures | consumed_in_c(system, "C consume, busy,")


def consumed_in_c(system: System, name: str) -> Figures:
    """Nothing where the client cannot be built."""
    rates: list[float] = []
    with Processor(system) as processor:
        for _ in range(C_RUNS):
            rate = consume_in_c_megabytes_per_s(system.bootstrap_servers, "in-c", RECORDS)
            if rate is None:
                return {}
            rates.append(rate)
    cost = processor.ms_per_megabyte(C_RUNS * MEGABYTES)
    return {f"{name} MB/s": statistics.median(rates), f"{name} ms/MB": cost}


def small_batches(system: System) -> Figures:
    create(system, "batches", PARTITIONS)
    return produced(system, "batches", "16 KB", {"batch.size": 16_384}, SOME_MEGABYTES)


def thousand_partitions(system: System) -> Figures:
    create(system, "thousand", MANY_PARTITIONS)
    return produced(system, "thousand", "1000", {}, SOME_MEGABYTES)


def crowd(system: System) -> Figures:
    """100 producers and 100 consumers at once, from the first record sent to the last one read."""
    create(system, "crowd", CROWD)
    with Processor(system) as processor:
        rate = crowd_megabytes_per_s(system.bootstrap_servers, "crowd", CROWD, CROWD_RECORDS)
    cost = processor.ms_per_megabyte(CROWD * CROWD_RECORDS * 1024 / MEGABYTE)
    return {"crowd MB/s": rate, "crowd ms/MB": cost}


def transactional(system: System) -> Figures:
    create(system, "transactions", PARTITIONS)
    figures: Figures = {}
    for records, count in TRANSACTIONS.items():
        transactions(system.bootstrap_servers, "transactions", records, 2)
        with Processor(system) as processor:
            rate, commit = transactions(system.bootstrap_servers, "transactions", records, count)
        figures[f"transactions of {records} records/s"] = rate
        figures[f"transactions of {records} commit ms"] = commit
        cost = processor.ms_per_megabyte(records * count * 100 / MEGABYTE)
        figures[f"transactions of {records} ms/MB"] = cost
    return figures


def tls(system: System) -> Figures:
    """Clients over TLS, brokers in plain text among themselves."""
    assert system.tls is not None
    create(system, "tls", PARTITIONS)
    figures = produced(system, "tls", "TLS", system.tls.client, SOME_MEGABYTES)
    servers = str(system.tls.client["bootstrap.servers"])
    records = SOME_MEGABYTES * MEGABYTE // 1024
    with Processor(system) as processor:
        rate = consume_megabytes_per_s(servers, "tls", records, 1024, system.tls.client)
    cost = processor.ms_per_megabyte(SOME_MEGABYTES)
    return {**figures, "consume TLS MB/s": rate, "consume TLS ms/MB": cost}


def catch_up(system: System) -> Figures:
    """A follower that missed the load gets it: bytes from its first growth to the leaders' size."""
    follower = IDS[-1]
    create(system, "behind", PARTITIONS)
    system.brokers[follower].stop()
    wait_until(lambda: is_led(system, "behind", PARTITIONS), "leaders without the follower", 60)
    produce_megabytes_per_s(system.bootstrap_servers, "behind", MEGABYTES, {})
    whole = system.log_bytes(IDS[0], "behind")
    before = system.log_bytes(follower, "behind")
    system.brokers[follower].start()
    while system.log_bytes(follower, "behind") == before:
        time.sleep(0.002)
    began, first = time.perf_counter(), system.log_bytes(follower, "behind")
    while system.log_bytes(follower, "behind") < whole:
        assert time.perf_counter() - began < FIRST_TIMEOUT_S
        time.sleep(0.005)
    took = time.perf_counter() - began
    return {"catch-up MB/s": (whole - first) / MEGABYTE / took}


def leader_death(system: System) -> Figures:
    """From the kill -9 of a leader that is not the controller until a record is acknowledged.

    What the death of a controller costs is measured with more to take over.
    """
    controller = system.controller()
    others = [broker for broker in IDS if broker != controller]
    create(system, "deadly", 1, [*others, controller])
    sending = Sending(system.bootstrap_servers, **EAGER)
    sending.send("deadly", payload(100), 1000)
    leader = system.partitions("deadly")[0].leader_id
    began = time.perf_counter()
    system.brokers[leader].kill()
    sending.send("deadly", payload(100), 1)
    return {"leader death s": time.perf_counter() - began}


def many_partitions(system: System) -> Figures:
    """1,000 partitions at once; then, with 5,000, the controller is killed."""
    began = time.perf_counter()
    create(system, "many-0", MANY_PARTITIONS)
    created = time.perf_counter() - began
    names = ["many-0"]
    for number in range(1, TOPICS_OF_MANY):
        names.append(f"many-{number}")
        create(system, names[-1], MANY_PARTITIONS)
    dead = system.controller()
    began = time.perf_counter()
    system.brokers[dead].kill()
    for name in names:
        wait_until(partial(is_led, system, name, MANY_PARTITIONS), f"leaders of {name}", 180)
    wait_until(lambda: system.controller() not in (dead, -1), "a new controller")
    return {"create 1000 s": created, "controller death s": time.perf_counter() - began}


def restart_of_many(system: System) -> Figures:
    """The broker that was killed with its 5,000 replicas: until all of them are in sync again."""
    (dead,) = set(IDS) - set(system.running())
    names = [f"many-{number}" for number in range(TOPICS_OF_MANY)]
    began = time.perf_counter()
    system.brokers[dead].start()
    for name in names:
        wait_until(partial(is_in_sync, system, name), f"full ISRs of {name}", IN_SYNC_TIMEOUT_S)
    return {"restart s": time.perf_counter() - began}


def stop_of_many(system: System) -> Figures:
    """A clean stop of a broker with 5,000 replicas that is not the controller."""
    broker = next(broker for broker in IDS if broker != system.controller())
    began = time.perf_counter()
    system.brokers[broker].stop()
    return {"stop s": time.perf_counter() - began}


def is_in_sync(system: System, topic: str) -> bool:
    """Some broker names all replicas of every partition as in sync."""
    known = system.partitions(topic)
    return bool(known) and all(len(part.isr_nodes) == len(IDS) for part in known)
