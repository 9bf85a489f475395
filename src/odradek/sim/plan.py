"""What a seed draws before anything happens: a cluster, its settings, its load and its faults.

A plan is plain data. It can be written to a file and read again, so that a run that once failed can
be repeated after a change of the dice has made another plan of its seed. The seed stays part of it:
the world's own dice (latencies, torn writes, clients) are thrown while the plan is carried out.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import Any

from odradek.wire.protocol_version import ProtocolVersion

from .faults import (
    Fault,
    Kind,
    draw_broken_clients,
    draw_client_links,
    draw_clock_jumps,
    draw_damage,
    draw_faults,
    draw_filling_disks,
    draw_power_losses_behind,
    draw_twins,
    draw_two_power_losses,
    draw_upgrades,
)
from .workload import Load
from .world import Protocols, World

PRODUCERS_MAX = 3
# In so many worlds partitions are moved for plans.
PLANS_SHARE = 0.3
# A follower that is behind fetches one batch or two at a time: being behind lasts.
FETCH_BYTES = "replica.fetch.max.bytes"
SMALL_FETCHES = {FETCH_BYTES: "250"}
# Logs of many segments: what a broker recovers after a kill begins with the last one, the topics
# of the coordinators are compacted all the time, and a long run costs no more than a short one.
SEGMENT_BYTES = ("8192", "32768")
SEGMENTS_SHARE = 0.8
# Faults come as often, whatever clients do: in a busy world each meets many requests, in a calm one
# what must happen without any.
PAUSES = (1.0, 3.0, 10.0, 10.0, 10.0)
# Of a long run, however long: what costs is the number of requests.
BUSY_S = 60.0
# So that a move between directories lasts while other things happen.
MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
SLOW_MOVES = {MOVE_RATE: "2000"}
# How long a follower's fetch waits for records: where clients are calm, half of a run is fetches.
FETCH_WAIT_MS = ("500", "1500", "2500")
OFFLOAD_S = (0.0, 0.0, 0.005, 0.2)
# Wide worlds: so many partitions that requests about all of them are large, and one fault.
WIDE_PARTITIONS = (1000, 2000)
WIDE_FAULTS = (
    *(Kind.KILL, Kind.STOP, Kind.PAUSE, Kind.POWER_LOSS, Kind.ERASE, Kind.ISOLATE, Kind.CUT),
    *(Kind.STORE_CUT, Kind.STORE_EXPIRE, Kind.DEPOSE, Kind.DISK_FAIL, Kind.DISK_FULL),
)
WIDE_FAULT_AT_S, WIDE_FAULT_S = 5.0, 8.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One world, and what happens in it."""

    seed: int
    brokers: int
    replication: int
    min_isr: int
    partitions: int
    log_dirs: int
    latency_s: float
    seconds: float
    load: Load
    faults: Sequence[Fault]
    # Of the brokers, besides those that every run has.
    settings: Mapping[str, str] = field(default_factory=dict)
    # Inter-broker protocols: of each broker at first, in order of ids, and what they are upgraded
    # to. Plans of old have none, and are carried out in the oldest.
    protocols: Sequence[str] = ()
    later_protocol: str = str(ProtocolVersion.oldest())
    # How long work that leaves the loop (flushes, above all) takes on the average.
    offload_s: float = 0.0

    @property
    def world_protocols(self) -> Protocols:
        versions = map(
            ProtocolVersion.parse, self.protocols or (self.later_protocol,) * self.brokers
        )
        return Protocols(dict(enumerate(versions, 1)), ProtocolVersion.parse(self.later_protocol))

    def __str__(self) -> str:
        load = self.load
        return (
            f"{self.brokers} brokers with {self.log_dirs} log directories, "
            f"{self.latency_s * 1000:.1f} ms apart, {self.partitions} partitions, "
            f"replication {self.replication}, min.insync.replicas {self.min_isr}, "
            + "".join(f"{name} {value}, " for name, value in self.settings.items())
            + f"protocols {' '.join(self.protocols)} up to {self.later_protocol}, "
            + f"{load.producers} producers, {load.consumers} consumers, {load.groups} groups of "
            f"{load.members}, {'an' if load.admin else 'no'} administrator, "
            f"{load.writers} transactional writers, {load.movers} movers, "
            f"{load.committed_consumers} consumers with read_committed, "
            f"{'plans, ' if load.plans else ''}"
            f"{'moves between directories, ' if load.directory_moves else ''}"
            f"{'pipelines, ' if load.pipelining else ''}"
            f"{f'{load.pause:.0f} times as long pauses, ' if load.pause != 1.0 else ''}"
            f"{f'busy {load.busy_share:.0%} of the time, ' if load.busy_share != 1.0 else ''}"
            f"{'topics that are compacted and trimmed, ' if load.cleaning else ''}"
            f"{f'flushes of {self.offload_s * 1000:.0f} ms, ' if self.offload_s else ''}"
            f"{len(self.faults)} faults"
        )

    def to_json(self) -> str:
        """One line for each field and for each fault."""
        fields = {name: value for name, value in asdict(self).items() if name != "faults"}
        lines = [f'  "{name}": {json.dumps(value)},' for name, value in fields.items()]
        faults = ",\n".join("    " + json.dumps(astuple(fault)) for fault in self.faults)
        return "\n".join(["{", *lines, '  "faults": [', faults, "  ]", "}", ""])

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        fields: dict[str, Any] = json.loads(text)
        fields["load"] = Load(**fields["load"])
        fields["faults"] = [
            Fault(at, Kind(kind), victim, other, duration_s)
            for at, kind, victim, other, duration_s in fields["faults"]
        ]
        return cls(**fields)


def draw_load(world: World, rng: random.Random, partitions: int, seconds: float) -> Load:
    """Clients; with transactions in one world of two, drawn apart from all others."""
    load = Load(
        producers=rng.randint(1, PRODUCERS_MAX),
        idempotent=rng.choice([0.0, 0.5, 1.0]),
        consumers=rng.randint(0, 2),
        groups=rng.randint(0, 2),
        members=rng.randint(1, 3),
        admin=rng.random() < 0.6,
    )
    load = replace(
        load,
        fills_topics=world.dice("full topics").random() < 0.5,
        plans=world.dice("plans").random() < PLANS_SHARE,
        pipelining=world.dice("pipelining").choice([0.0, 0.5, 1.0]),
        cleaning=world.dice("cleaning").random() < 0.4,
        pause=world.dice("pause").choice(PAUSES),
        busy_share=BUSY_S / max(BUSY_S, seconds),
        directory_moves=world.dice("directory moves").random() < 0.5,
    )
    apart = world.dice("transactions")
    if apart.random() < 0.5:
        return load
    return replace(
        load,
        writers=apart.randint(1, 3),
        movers=min(partitions, apart.randint(0, 2)),
        committed_consumers=apart.randint(1, 2),
    )


def draw_settings(world: World, rng: random.Random) -> dict[str, str]:
    """Settings of all brokers."""
    settings = dict(rng.choice([{}, {}, SMALL_FETCHES]))
    settings["replica.fetch.wait.max.ms"] = world.dice("fetch wait").choice(FETCH_WAIT_MS)
    settings |= world.dice("move rate").choice([{}, SLOW_MOVES])
    apart = world.dice("segments")
    if apart.random() < SEGMENTS_SHARE:
        size = apart.choice(SEGMENT_BYTES)
        settings |= {
            "log.segment.bytes": size,
            "offsets.topic.segment.bytes": size,
            "transaction.state.log.segment.bytes": size,
            "log.cleaner.backoff.ms": "1000",
            "log.segment.delete.delay.ms": "1000",
        }
    return settings


def _faults(world: World, rng: random.Random, brokers: range, seconds: float) -> list[Fault]:
    faults = [
        *draw_faults(rng, brokers, seconds),
        *draw_damage(world.dice("damage"), brokers, seconds),
        *draw_broken_clients(world.dice("clients"), brokers, seconds),
        *draw_filling_disks(world.dice("filling disks"), brokers, seconds),
        *draw_client_links(world.dice("client links"), brokers, seconds),
        *draw_two_power_losses(world.dice("two power losses"), brokers, seconds),
        *draw_power_losses_behind(world.dice("power behind"), brokers, seconds),
        *draw_clock_jumps(world.dice("clock jumps"), brokers, seconds),
        *draw_twins(world.dice("twins"), brokers, seconds),
        *draw_upgrades(world.dice("upgrades"), brokers, seconds),
    ]
    return sorted(faults, key=lambda fault: fault.at)


def draw_protocols(
    rng: random.Random, brokers: int
) -> tuple[list[ProtocolVersion], ProtocolVersion]:
    """The latest everywhere, one everywhere, or a mixture; and one that is as late as any."""
    versions = list(ProtocolVersion)
    earlier, later = sorted(rng.choices(versions, k=2))
    kind = rng.choice(["latest", "same", "mixed"])
    if kind == "latest":
        return [ProtocolVersion.latest()] * brokers, ProtocolVersion.latest()
    if kind == "same":
        return [earlier] * brokers, later
    return [rng.choice([earlier, later, rng.choice(versions)]) for _ in range(brokers)], later


def draw_plan(seed: int, seconds: float = 60.0) -> Plan:
    """The world of a seed."""
    world = World(seed, 1)
    rng = world.dice("plan")
    brokers = rng.choice([3, 3, 3, 4, 5])
    replication = rng.choice([3, 3, 2])
    protocols, later = draw_protocols(world.dice("protocols"), brokers)
    min_isr = min(replication, rng.choice([2, 2, 1]))
    partitions = rng.randint(1, 4)
    log_dirs = rng.choice([1, 1, 2])
    # Far apart, what is on its way is on its way for longer: races are as wide as that.
    latency_s = rng.choice([0.0002, 0.0002, 0.01, 0.08])
    load = draw_load(world, rng, partitions, seconds)
    return Plan(
        seed=seed,
        brokers=brokers,
        replication=replication,
        min_isr=min_isr,
        partitions=partitions,
        log_dirs=log_dirs,
        latency_s=latency_s,
        seconds=seconds,
        load=load if log_dirs > 1 else replace(load, directory_moves=False),
        faults=_faults(world, rng, range(1, brokers + 1), seconds),
        settings=draw_settings(world, rng),
        protocols=list(map(str, protocols)),
        later_protocol=str(later),
        offload_s=world.dice("offload").choice(OFFLOAD_S),
    )


def draw_wide_plan(seed: int, seconds: float = 60.0) -> Plan:
    """A world of a thousand partitions and more, of the seed; few clients, and one fault."""
    world = World(seed, 1)
    rng = world.dice("wide")
    brokers = rng.choice([3, 3, 4])
    replication = rng.choice([3, 3, 2])
    protocols, later = draw_protocols(world.dice("protocols"), brokers)
    victim, other = rng.sample(range(1, brokers + 1), 2)
    duration_s = rng.uniform(0.1, WIDE_FAULT_S)
    return Plan(
        seed=seed,
        brokers=brokers,
        replication=replication,
        min_isr=min(replication, rng.choice([2, 1])),
        partitions=rng.randint(*WIDE_PARTITIONS),
        log_dirs=rng.choice([1, 2]),
        latency_s=rng.choice([0.0002, 0.01]),
        seconds=seconds,
        load=Load(
            producers=rng.randint(1, 2),
            idempotent=rng.choice([0.0, 1.0]),
            consumers=rng.randint(0, 1),
            groups=rng.randint(0, 1),
            members=1,
            admin=False,
            pause=10.0,
        ),
        faults=[Fault(WIDE_FAULT_AT_S, rng.choice(WIDE_FAULTS), victim, other, duration_s)],
        settings={"replica.fetch.wait.max.ms": FETCH_WAIT_MS[-1]},
        protocols=list(map(str, protocols)),
        later_protocol=str(later),
    )
