"""What is measured: functions that do something to a system and give figures by name."""

import time
from collections.abc import Sequence
from functools import partial

from tests.interop.harness.members import wait_until

from benchmarks.apache_kafka.load import (
    MEGABYTE,
    PARTITIONS,
    Sending,
    consume_megabytes_per_s,
    payload,
    produce_megabytes_per_s,
    small_records_per_s,
    synchronous_ms,
)
from benchmarks.apache_kafka.systems import IDS, System
from odradek.client import Blocking, NewTopic, check

Figures = dict[str, float]

MEGABYTES = 300
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


def throughput(system: System) -> Figures:
    """Producing and consuming on a warm cluster: the same load goes first, uncounted."""
    servers = system.bootstrap_servers
    figures: Figures = {}
    for topic, codec in (("plain", "none"), ("lz4", "lz4")):
        create(system, topic, PARTITIONS)
        settings = {"compression.type": codec}
        produce_megabytes_per_s(servers, topic, MEGABYTES, settings)
        rate = produce_megabytes_per_s(servers, topic, MEGABYTES, settings)
        figures[f"produce {codec} MB/s"] = rate
    figures["memory loaded MB"] = system.memory_bytes() / MEGABYTE
    records = MEGABYTES * MEGABYTE // 1024
    figures["consume MB/s"] = consume_megabytes_per_s(servers, "plain", records, 1024)
    create(system, "small", PARTITIONS)
    small_records_per_s(servers, "small", SMALL_RECORDS)
    figures["small records/s"] = small_records_per_s(servers, "small", SMALL_RECORDS)
    middle, late = synchronous_ms(servers, "small", SYNCHRONOUS)
    figures["synchronous p50 ms"], figures["synchronous p99 ms"] = middle, late
    return figures


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
