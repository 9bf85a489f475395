"""What goes wrong, drawn from a seed: a list of faults, each with its time, its victim and its end.

Swarm testing: a seed first draws which kinds of fault exist in its world at all and how often, so
that rare combinations are tried as often as common ones. The list is made before the run and is
plain data: a failing run is replayed from it, and made smaller by leaving faults out.

A fault that destroys data (power loss, a lost disk) is injected only when every replica is in sync
and every host is well: what a cluster promises, it promises while no more copies fail than it
tolerates. And until the cluster has noticed a power loss, no other broker is taken away: the ISR
could shrink to the one replica that lost its last records, and no other process could tell.
Everything else is injected at any time.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from odradek.log.checkpoints import CLEAN_SHUTDOWN
from odradek.log.log import Log
from odradek.store import paths
from odradek.wire.topics import TopicPartition

from .network import JITTER_S
from .observation import Ledger, hosted
from .world import CAPACITY_BYTES, Host, World


class Kind(StrEnum):
    """What can happen to a cluster."""

    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"
    POWER_LOSS = "power-loss"
    ERASE = "erase"
    ISOLATE = "isolate"
    CUT = "cut"
    CUT_ONE_WAY = "cut-one-way"
    SLOW = "slow"
    RESET = "reset"
    STORE_CUT = "store-cut"
    STORE_EXPIRE = "store-expire"
    SKEW = "skew"
    DISK_FAIL = "disk-fail"
    DISK_FULL = "disk-full"
    DISK_FILLS = "disk-fills"
    DEPOSE = "depose"
    DAMAGE = "damage"
    BREAK_CLIENTS = "break-clients"
    CUT_CLIENTS = "cut-clients"
    SLOW_CLIENTS = "slow-clients"
    SPIKE = "spike"
    TWO_POWER_LOSSES = "two-power-losses"
    SAME_ID = "same-id"
    PAUSE_AND_SAME_ID = "pause-and-same-id"
    UPGRADE = "upgrade"
    CLOCK_JUMP = "clock-jump"
    POWER_LOSS_BEHIND = "power-loss-behind"


TWINS = {Kind.SAME_ID, Kind.PAUSE_AND_SAME_ID}
# A machine that takes the id of one that is paused comes with an empty disk.
DESTROYS_DATA = {Kind.POWER_LOSS, Kind.TWO_POWER_LOSSES, Kind.ERASE, Kind.DAMAGE, *TWINS}
CLIENT_LINKS = {Kind.CUT_CLIENTS, Kind.SLOW_CLIENTS, Kind.SPIKE}
# Drawn by generators of their own, so that the other faults of a seed stay what they were.
DRAWN_APART = {
    Kind.DAMAGE,
    Kind.BREAK_CLIENTS,
    Kind.UPGRADE,
    Kind.DISK_FILLS,
    Kind.TWO_POWER_LOSSES,
    Kind.POWER_LOSS_BEHIND,
    Kind.CLOCK_JUMP,
    *CLIENT_LINKS,
    *TWINS,
}
TWO = {Kind.TWO_POWER_LOSSES}
# Those after which the victim is switched on again.
STARTED_AGAIN = {
    Kind.KILL,
    Kind.STOP,
    Kind.POWER_LOSS,
    Kind.POWER_LOSS_BEHIND,
    Kind.ERASE,
    Kind.DAMAGE,
    Kind.UPGRADE,
}
TAKES_AWAY = {
    Kind.KILL,
    Kind.STOP,
    Kind.PAUSE,
    Kind.ISOLATE,
    Kind.STORE_CUT,
    Kind.STORE_EXPIRE,
    Kind.DISK_FAIL,
    Kind.DISK_FULL,
    Kind.DISK_FILLS,
    Kind.UPGRADE,
}
SLOW_LATENCY_S = 0.2
# While a host's network is overloaded, a message takes anything up to this.
SPIKE_JITTER_S = 1.0
# How far a clock jumps at most: hours, and less than the day after which producers are forgotten.
JUMP_MS_MAX = 12 * 3_600_000
# What is left on a disk that fills: less than a few batches.
ROOM_BYTES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong, from `at` for `duration_s`."""

    at: float
    kind: Kind
    victim: int
    other: int
    duration_s: float

    def __str__(self) -> str:
        whom = f"{self.victim}-{self.other}" if self.kind in PAIRS else str(self.victim)
        return f"{self.kind} {whom} at {self.at:.2f} for {self.duration_s:.2f}"


PAIRS = {Kind.CUT, Kind.CUT_ONE_WAY, Kind.SLOW, Kind.RESET, Kind.TWO_POWER_LOSSES}


def draw_faults(rng: random.Random, brokers: Iterable[int], until_s: float) -> list[Fault]:
    """The faults of one run."""
    ids = list(brokers)
    drawn = [kind for kind in Kind if kind not in DRAWN_APART]
    kinds = [kind for kind in drawn if rng.random() < 0.5]
    if not kinds:
        kinds = [rng.choice(drawn)]
    weights = [rng.uniform(0.2, 1.0) for _ in kinds]
    gap_s = rng.choice([2.0, 5.0, 15.0])
    faults: list[Fault] = []
    at = rng.uniform(1, 5)
    while at < until_s:
        kind = rng.choices(kinds, weights)[0]
        victim = rng.choice(ids)
        other = rng.choice([one for one in ids if one != victim] or ids)
        duration_s = min(rng.expovariate(1 / rng.choice([0.5, 3.0, 10.0])) + 0.05, 60.0)
        faults.append(Fault(at, kind, victim, other, duration_s))
        at += rng.expovariate(1 / gap_s)
    return faults


def draw_damage(rng: random.Random, brokers: Iterable[int], until_s: float) -> list[Fault]:
    """Damage to files of brokers that were stopped cleanly, in one world of three."""
    ids = list(brokers)
    faults: list[Fault] = []
    at = rng.uniform(2, 20)
    while rng.random() < 0.33 and at < until_s:
        faults.append(Fault(at, Kind.DAMAGE, rng.choice(ids), ids[0], rng.uniform(0.1, 4.0)))
        at += rng.uniform(2, 20)
    return faults


def draw_filling_disks(rng: random.Random, brokers: Iterable[int], until_s: float) -> list[Fault]:
    """Disks that have room for a part of a write only, in one world of three."""
    ids = list(brokers)
    faults: list[Fault] = []
    at = rng.uniform(2, 20) if rng.random() < 0.33 else until_s
    while at < until_s:
        faults.append(Fault(at, Kind.DISK_FILLS, rng.choice(ids), ids[0], rng.uniform(0.1, 4.0)))
        at += rng.expovariate(1 / 15)
    return faults


def draw_broken_clients(rng: random.Random, brokers: Iterable[int], until_s: float) -> list[Fault]:
    """Connections of clients that break, in one world of two."""
    ids = list(brokers)
    faults: list[Fault] = []
    gap_s = rng.choice([1.0, 5.0, 20.0])
    at = rng.uniform(1, 5) if rng.random() < 0.5 else until_s
    while at < until_s:
        faults.append(Fault(at, Kind.BREAK_CLIENTS, rng.choice(ids), ids[0], 0.0))
        at += rng.expovariate(1 / gap_s)
    return faults


def draw_client_links(rng: random.Random, brokers: Iterable[int], until_s: float) -> list[Fault]:
    """Links of clients that are cut or slow, and hosts all of whose messages are late, in one
    world of two."""
    ids = list(brokers)
    faults: list[Fault] = []
    gap_s = rng.choice([5.0, 20.0])
    at = rng.uniform(1, 5) if rng.random() < 0.5 else until_s
    while at < until_s:
        kind = rng.choice(sorted(CLIENT_LINKS))
        duration_s = min(rng.expovariate(1 / 4.0) + 0.05, 60.0)
        faults.append(Fault(at, kind, rng.choice(ids), rng.choice(ids), duration_s))
        at += rng.expovariate(1 / gap_s)
    return faults


def draw_two_power_losses(
    rng: random.Random, brokers: Iterable[int], until_s: float
) -> list[Fault]:
    """Two machines lose power at once, in one world of two with three replicas."""
    ids = list(brokers)
    faults: list[Fault] = []
    at = rng.uniform(2, 20) if rng.random() < 0.5 else until_s
    while at < until_s:
        victim, other = rng.sample(ids, 2)
        duration_s = rng.uniform(0.1, 15.0)
        faults.append(Fault(at, Kind.TWO_POWER_LOSSES, victim, other, duration_s))
        at += rng.uniform(5, 40)
    return faults


def draw_power_losses_behind(
    rng: random.Random, brokers: Iterable[int], until_s: float
) -> list[Fault]:
    """A broker is killed, comes back, and its machine loses power while it catches up: in one world
    of three."""
    ids = list(brokers)
    faults: list[Fault] = []
    at = rng.uniform(2, 20) if rng.random() < 0.33 else until_s
    while at < until_s:
        victim, away_s = rng.choice(ids), rng.uniform(2.0, 10.0)
        faults.append(Fault(at, Kind.KILL, victim, victim, away_s))
        lost = at + away_s + rng.uniform(0.2, 3.0)
        duration_s = rng.uniform(0.1, 8.0)
        faults.append(Fault(lost, Kind.POWER_LOSS_BEHIND, victim, victim, duration_s))
        at += rng.uniform(10, 60)
    return [fault for fault in faults if fault.at < until_s]


def draw_clock_jumps(rng: random.Random, brokers: Iterable[int], until_s: float) -> list[Fault]:
    """Clocks that jump by hours and are set right again, in one world of three."""
    ids = list(brokers)
    faults: list[Fault] = []
    at = rng.uniform(2, 20) if rng.random() < 0.33 else until_s
    while at < until_s:
        victim = rng.choice(ids)
        faults.append(Fault(at, Kind.CLOCK_JUMP, victim, victim, rng.uniform(1.0, 30.0)))
        at += rng.uniform(5, 40)
    return faults


def draw_twins(rng: random.Random, brokers: Iterable[int], until_s: float) -> list[Fault]:
    """Second processes under an id that is in use: in few runs, for they need a healthy cluster."""
    ids = list(brokers)
    faults: list[Fault] = []
    while rng.random() < 0.4:
        victim = rng.choice(ids)
        # Several sessions long, or too short to notice.
        duration_s = rng.uniform(0.5, 20.0)
        kind = rng.choice(sorted(TWINS))
        faults.append(Fault(rng.uniform(2, until_s), kind, victim, victim, duration_s))
    return faults


def draw_upgrades(rng: random.Random, brokers: Iterable[int], until_s: float) -> list[Fault]:
    """Brokers that are stopped, one after the other or at once, to speak a later protocol."""
    ids = list(brokers)
    rng.shuffle(ids)
    at, gap_s = rng.uniform(1, until_s), rng.choice([0.5, 5.0, 20.0])
    faults: list[Fault] = []
    for id in ids:
        if at < until_s:
            faults.append(Fault(at, Kind.UPGRADE, id, id, rng.uniform(0.1, 3.0)))
        at += rng.expovariate(1 / gap_s)
    return faults


class FaultInjector:
    """Injects faults, and heals them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.injected: dict[Kind, int] = {}
        self._without_power: set[int] = set()

    async def inject(self, fault: Fault) -> bool:
        """Begin a fault; False when it makes no sense now (the victim is already down)."""
        world, host = self.world, self.world.hosts[fault.victim]
        other = world.hosts[fault.other]
        if fault.kind in DESTROYS_DATA and not self._may_destroy(2 if fault.kind in TWO else 1):
            return False
        if not host.is_up or (fault.kind in TAKES_AWAY and self._is_unnoticed()):
            return False
        if fault.kind is Kind.POWER_LOSS_BEHIND and not self._is_behind(host):
            return False
        hit = {fault.victim, fault.other} if fault.kind in TWO else {fault.victim}
        if hit & world.twins.keys() and fault.kind in TAKES_AWAY | DESTROYS_DATA:
            return False  # its twin would take the id at a time when it may have the only copy
        match fault.kind:
            case Kind.KILL:
                host.kill()
            case Kind.STOP:
                await host.stop()
            case Kind.UPGRADE:
                if not host.upgrade():
                    return False
                await host.stop()
            case Kind.PAUSE:
                host.pause()
            case Kind.POWER_LOSS | Kind.POWER_LOSS_BEHIND:
                host.lose_power()
                self._without_power = {host.id}
            case Kind.TWO_POWER_LOSSES:
                host.lose_power()
                other.lose_power()
                self._without_power = {host.id, other.id}
            case Kind.ERASE:
                host.erase()
            case Kind.DAMAGE:
                await host.stop()
                self._damage(host, fault)
            case Kind.STORE_CUT:
                if host.store is not None:
                    world.server.disconnect(host.store)
            case Kind.STORE_EXPIRE:
                if host.store is not None:
                    world.server.expire(host.store)
            case Kind.DISK_FAIL:
                host.disk.failed.add(host.directories[fault.other % len(host.directories)])
            case Kind.DISK_FULL:
                host.disk.capacity_bytes = host.disk.used_bytes
            case Kind.DISK_FILLS:
                dice = world.dice(f"room/{host.name}/{fault.at}")
                host.disk.capacity_bytes = host.disk.used_bytes + dice.randrange(1, ROOM_BYTES_MAX)
            case Kind.SAME_ID:
                world.start_twin(host.id)
            case Kind.PAUSE_AND_SAME_ID:
                host.pause()
                world.start_twin(host.id)
            case Kind.DEPOSE:
                world.server.remove(paths.CONTROLLER)
            case Kind.CLOCK_JUMP:
                dice = world.dice(f"jump/{host.name}/{fault.at}")
                host.skew_ms = dice.randint(-JUMP_MS_MAX, JUMP_MS_MAX)
            case Kind.SKEW:
                host.skew_ms = int(fault.duration_s * 1000) * (1 if fault.other % 2 else -1)
        self._disturb(fault)
        world.note(f"fault: {fault}")
        self.injected[fault.kind] = self.injected.get(fault.kind, 0) + 1
        return True

    def _disturb(self, fault: Fault) -> None:
        """Begin a fault of the network; nothing for others."""
        world, host = self.world, self.world.hosts[fault.victim]
        other = world.hosts[fault.other]
        match fault.kind:
            case Kind.ISOLATE:
                for one in world.hosts.values():
                    self._cut(host, one)
                    self._cut(one, host)
            case Kind.CUT:
                self._cut(host, other)
                self._cut(other, host)
            case Kind.CUT_ONE_WAY:
                self._cut(host, other)
            case Kind.SLOW:
                world.network.link(host.name, other.name).latency_s = SLOW_LATENCY_S
            case Kind.RESET:
                world.network.reset_connections(host.name, other.name)
            case Kind.BREAK_CLIENTS:
                world.network.break_clients(host.name, {each.name for each in world.machines})
            case Kind.CUT_CLIENTS:
                for source, target in self._client_links(fault):
                    world.network.cut(source, target)
            case Kind.SLOW_CLIENTS:
                for source, target in self._client_links(fault):
                    world.network.link(source, target).latency_s = SLOW_LATENCY_S
            case Kind.SPIKE:
                self._set_jitter(host, SPIKE_JITTER_S)

    async def heal(self, fault: Fault) -> None:
        """The fault is over."""
        world, host = self.world, self.world.hosts[fault.victim]
        other = world.hosts[fault.other]
        match fault.kind:
            case _ if fault.kind in STARTED_AGAIN:
                if not host.is_up:
                    host.start()
            case Kind.TWO_POWER_LOSSES:
                for one in (host, other):
                    if not one.is_up:
                        one.start()
            case Kind.CUT_CLIENTS:
                for source, target in self._client_links(fault):
                    world.network.heal(source, target)
            case Kind.SLOW_CLIENTS:
                for source, target in self._client_links(fault):
                    world.network.link(source, target).latency_s = world.network.latency_s
            case Kind.SPIKE:
                self._set_jitter(host, JITTER_S)
            case Kind.PAUSE:
                host.resume()
            case Kind.CLOCK_JUMP:
                host.skew_ms = 0
            case Kind.SAME_ID | Kind.PAUSE_AND_SAME_ID:
                twin = world.twins.pop(fault.victim)
                if twin.is_retired:
                    twin.resume()  # it must find out by itself that another has its id
                else:
                    twin.is_retired = True
                    twin.kill()
                    host.resume()
            case Kind.ISOLATE:
                for one in world.hosts.values():
                    world.network.heal(host.name, one.name)
                    world.network.heal(one.name, host.name)
            case Kind.CUT | Kind.CUT_ONE_WAY:
                world.network.heal(host.name, other.name)
                world.network.heal(other.name, host.name)
            case Kind.SLOW:
                world.network.link(host.name, other.name).latency_s = world.network.latency_s
            case Kind.STORE_CUT:
                if host.store is not None:
                    world.server.reconnect(host.store)
            case Kind.DISK_FAIL | Kind.DISK_FULL | Kind.DISK_FILLS:
                host.mend_disk()
                if self._misses_directories(host):
                    await host.stop()
                    if not host.is_up:
                        host.start()
        world.note(f"over:  {fault}")

    def _damage(self, host: Host, fault: Fault) -> None:
        """Only what a stop left behind that was clean, and complete: the last in-sync replica has
        no other to copy from."""
        directory = host.directories[fault.other % len(host.directories)]
        in_sync = any(host.id in state.isr for state in self.world.ledger.states.values())
        if host.is_up or in_sync or f"{directory}/{CLEAN_SHUTDOWN}" not in host.disk.files:
            return
        dice = self.world.dice(f"damage/{host.name}/{host.starts}")
        self.world.note(f"damage: {host.name} {host.disk.damage(dice, directory)}")

    def heal_everything(self) -> None:
        """All hosts on and awake, all links whole."""
        for link in self.world.network.links.values():
            link.latency_s, link.jitter_s = self.world.network.latency_s, JITTER_S
        self.world.network.heal_all()
        hosts = self.world.hosts.values()
        self.world.twins.clear()
        for machine in self.world.machines:
            if machine not in hosts:
                machine.kill()
        for host in hosts:
            host.mend_disk()
            host.resume()
            host.skew_ms = 0
            if self._misses_directories(host):
                # A directory that failed comes back with its broker.
                host.kill()
            if host.store is not None:
                self.world.server.reconnect(host.store)
            if not host.is_up:
                host.start()
        self.world.note("all faults are over")

    @staticmethod
    def _misses_directories(host: Host) -> bool:
        broker = host.broker
        return broker is not None and hasattr(broker, "logs") and bool(broker.logs.dirs.offline)

    def _is_unnoticed(self) -> bool:
        """Whether a broker lost power and still counts as in sync somewhere where it is not."""
        if not self._without_power:
            return False
        if self._may_destroy() or not any(
            self._without_power & set(state.isr) for state in self.world.ledger.states.values()
        ):
            self._without_power = set()
        return bool(self._without_power)

    def _client_links(self, fault: Fault) -> list[tuple[str, str]]:
        """Between a broker and all clients: both ways, or one of them."""
        name = self.world.hosts[fault.victim].name
        ways = fault.other % 3
        clients = self.world.client_hosts
        to_clients = [(name, client) for client in clients] if ways != 1 else []
        return to_clients + ([(client, name) for client in clients] if ways != 2 else [])

    def _set_jitter(self, host: Host, jitter_s: float) -> None:
        network = self.world.network
        for name in [*self.world.client_hosts, *(each.name for each in self.world.machines)]:
            for link in (network.link(host.name, name), network.link(name, host.name)):
                link.jitter_s = jitter_s

    def _cut(self, source: Host, target: Host) -> None:
        if source is not target:
            self.world.network.cut(source.name, target.name)

    def _may_destroy(self, copies: int = 1) -> bool:
        """Whether every copy there ought to be is there, whole: not only in the controller's eyes,
        which learns of a death when a session ends, but in the logs themselves."""
        if not all(map(self._is_well, self.world.hosts.values())) or not self._are_known():
            return False
        now = self.world.ledger
        logs: dict[tuple[TopicPartition, int], Log] = {}
        ends: dict[TopicPartition, int] = {}
        for broker, partition in hosted(self.world):
            logs[partition.tp, broker.id] = partition.local_log
            if partition.is_leader:
                ends[partition.tp] = partition.local_log.end_offset
        return all(
            len(replicas) > copies
            and self._is_whole(TopicPartition(name, number), replicas, now, ends, logs)
            for name, node in now.topics.items()
            for number, replicas in node.partitions.items()
        )

    def _is_behind(self, host: Host) -> bool:
        """Whether a broker is outside an ISR that it ought to be in, and may lose what it has:
        wherever it is in sync, another member of the ISR is well."""
        if self._is_unnoticed() or not self._are_known() or not self._is_well(host):
            return False
        states, hosts = self.world.ledger.states, self.world.hosts
        replaceable = all(
            any(self._is_well(hosts[member]) for member in state.isr if member != host.id)
            for state in states.values()
            if host.id in state.isr
        )
        return replaceable and any(
            host.id in replicas and of in states and host.id not in states[of].isr
            for name, node in self.world.ledger.topics.items()
            for number, replicas in node.partitions.items()
            for of in [TopicPartition(name, number)]
        )

    @staticmethod
    def _is_well(host: Host) -> bool:
        if not host.is_up or host.is_paused or host.is_stopping or host.store is None:
            return False
        if host.disk.failed or host.disk.capacity_bytes < CAPACITY_BYTES:
            return False  # its next write takes it away
        return bool(host.store.statistics()["connected"])

    def _are_known(self) -> bool:
        """Whether the controller knows every broker in its present incarnation: else one is about
        to leave the ISR."""
        brokers = self.world.brokers()
        if not all(hasattr(broker, "controller") for broker in brokers):
            return False  # one has hardly begun to start
        epochs = {broker.id: broker.epoch for broker in brokers}
        for broker in brokers:
            active = broker.controller._active
            if active is not None:
                known = active.term.context.brokers
                return epochs == {id: registered.epoch for id, registered in known.items()}
        return False

    @staticmethod
    def _is_whole(
        of: TopicPartition,
        replicas: Sequence[int],
        now: Ledger,
        ends: Mapping[TopicPartition, int],
        logs: Mapping[tuple[TopicPartition, int], Log],
    ) -> bool:
        state = now.states.get(of)
        return (
            state is not None
            and set(state.isr) == set(replicas)
            and of in ends
            and all(
                (of, replica) in logs and logs[of, replica].end_offset >= ends[of]
                for replica in replicas
            )
        )
