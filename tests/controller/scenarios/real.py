"""The same scenarios with real brokers: `odradek.broker.server.Broker` in the simulated world.

What a puppet pretends, a real broker must live through: a replica leaves the ISR because
its link to the leader is cut while records are written, and joins it because it has caught up; a
disk fails because it gives errors; a broker is silent because nobody can reach it.

Two things stay in the hands of the transcript, since real brokers would do them of themselves at a
moment nobody wrote down. When a leader may propose an ISR is the `Gate`'s to say (whether the
replica has what a member must have is still the leader's judgement, and the store's version check
decides as ever). And only the nodes a transcript names stand for controller.
"""

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import pytest
from tests.controller.scenarios.cluster import HeldStore, Member, ScenarioCluster, hold_news
from tests.controller.scenarios.runner import Runner, replay
from tests.controller.scenarios.wired import WiredController

from odradek.broker.config import BrokerConfig
from odradek.log.offload import on_the_spot
from odradek.replica import controller_notifications
from odradek.replica.controller_notifications import Notifications
from odradek.replica.leader.isr_change import IsrChange, NotApplied
from odradek.replica.leader.isr_change_queue import IsrChangeQueue
from odradek.sim.world import SESSION_TIMEOUT_MS, Host, ObservedBroker, World
from odradek.store import paths
from odradek.store.memory import MemoryStore
from odradek.store.payloads import LeaderAndIsr
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from odradek.wire.records import Record, encode_batch
from odradek.wire.topics import TopicPartition

# Leaders write their ISRs themselves, as the puppets do.
CONFIG = {"auto.leader.rebalance.enable": "false", "inter.broker.protocol.version": "2.6"}
LOG_DIRS = 2
STEP_S = 0.1
ISR_SETTLES_S = 15.0
WAIT_S_MAX = 300.0
ISR_NOTIFICATION = re.compile(r"> controller \d+: IsrChangeNotification ")
UNFORESEEN = re.compile(r"(> answer of \d+: \w+: UNKNOWN_SERVER_ERROR) .*")
REFUSALS = {
    ErrorCode.STALE_BROKER_EPOCH: "stale broker epoch",
    ErrorCode.STALE_CONTROLLER_EPOCH: "controller epoch {}",
}


class Gate:
    """Lets a leader's ISR changes pass when the transcript says so."""

    def __init__(self, writer: IsrChangeQueue, notifications: Notifications) -> None:
        self.wanted: dict[TopicPartition, tuple[int, ...]] = {}
        self.held: dict[TopicPartition, IsrChange] = {}
        self.holding: set[TopicPartition] = set()
        self.unannounced: set[TopicPartition] = set()
        # What the store took last; the replica may be gone again by the time it is asked for.
        self.taken: dict[TopicPartition, tuple[int, ...]] = {}
        self._writer = writer
        self._notifications = notifications
        self._submit, self._accepted = writer.submit, writer._accepted
        self._isr_changed = notifications.isr_changed
        writer.submit = self._gated_submit  # type: ignore[method-assign]
        writer._accepted = self._recorded_accepted  # type: ignore[method-assign]
        notifications.isr_changed = self._gated_isr_changed  # type: ignore[method-assign]

    def _gated_submit(self, change: IsrChange) -> None:
        if not self._is_wanted(change):
            # As if the leader had not looked yet: it will, at the next fetch or check.
            change.finish(NotApplied())
        elif change.tp in self.holding:
            self.held[change.tp] = change
        else:
            self._submit(change)

    def _is_wanted(self, change: IsrChange) -> bool:
        """Replicas that must go go first, so the old and the new are never seen together; others
        join in the order of the transcript."""
        wanted = self.wanted.get(change.tp)
        if wanted is None:
            return False
        now = set(change.committed)
        if change.joining is None:
            return now & set(wanted) <= set(change.state.isr)
        missing = [id for id in wanted if id not in now]
        return now <= set(wanted) and change.joining in missing[:1]

    def land(self, key: TopicPartition) -> None:
        self.holding.discard(key)
        self._submit(self.held.pop(key))

    def _recorded_accepted(self, change: IsrChange, state: LeaderAndIsr) -> None:
        self.taken[change.tp] = change.state.isr
        self._accepted(change, state)

    def _gated_isr_changed(self, tp: TopicPartition) -> None:
        if tp not in self.unannounced:
            self._isr_changed(tp)

    @property
    def is_idle(self) -> bool:
        return self._writer._writer is None

    @property
    def is_at_rest(self) -> bool:
        return self.is_idle and not self._notifications._changed


class RecordedBroker(ObservedBroker):
    """A broker that writes down what control requests made of its replicas, as a puppet does."""

    def __init__(self, actor: "Actor", *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._actor = actor
        self.held_replicas: set[TopicPartition] = set()

    def _make_parts(self) -> None:
        super()._make_parts()
        replicas = self.replicas
        self.gate = Gate(replicas.isr_changes, replicas._notifications)
        requests, logs = replicas.control_requests, replicas.replica_logs
        self._lead_or_follow, self._stop = requests.leader_and_isr, requests.stop_replica
        self._update, self._delete_log = requests.update_metadata, logs.delete
        for part, method, instead in (
            (requests, "leader_and_isr", self._recorded_lead_or_follow),
            (requests, "stop_replica", self._recorded_stop),
            (requests, "update_metadata", self._recorded_update),
            (logs, "delete", self._checked_delete_log),
        ):
            setattr(part, method, instead)
        if not self._actor.joins_election:
            election = self.controller.election
            setattr(election, "elect", election._read_elected)  # noqa: B010  # a method
        hold_news(self.controller, self._actor.held)
        self._actor.on_parts(self)

    async def _recorded_lead_or_follow(
        self, request: LeaderAndIsrRequest, version: int
    ) -> LeaderAndIsrResponse:
        response = await self._lead_or_follow(request, version)
        self._note_refusal(ErrorCode(response.error_code), request.controller_epoch)
        errors = {
            TopicPartition(error.topic_name, error.partition_index): error.error_code
            for error in response.partition_errors
        }
        for topic in request.topic_states:
            for state in topic.partition_states:
                key = TopicPartition(topic.topic_name, state.partition_index)
                if errors[key] == ErrorCode.NONE:
                    self.held_replicas.add(key)
                    role = "leads" if state.leader == self.id else f"follows {state.leader}"
                    new = " new" if state.is_new else ""
                    self._actor.note(str(key), f"{role} epoch={state.leader_epoch}{new}")
        return response

    def _recorded_stop(self, request: StopReplicaRequest) -> StopReplicaResponse:
        response = self._stop(request)
        self._note_refusal(ErrorCode(response.error_code), request.controller_epoch)
        errors = {
            TopicPartition(error.topic_name, error.partition_index): error.error_code
            for error in response.partition_errors
        }
        for topic in request.topic_states:
            for state in topic.partition_states:
                key = TopicPartition(topic.topic_name, state.partition_index)
                if errors.get(key) == ErrorCode.NONE:
                    if key in self.held_replicas or state.delete_partition:
                        self._actor.note(
                            str(key), "deleted" if state.delete_partition else "stopped"
                        )
                    self.held_replicas.discard(key)
        return response

    def _recorded_update(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        response = self._update(request)
        self._note_refusal(ErrorCode(response.error_code), request.controller_epoch)
        return response

    def _checked_delete_log(self, key: TopicPartition) -> None:
        self._actor.check_deletion(key)
        self._delete_log(key)

    def _note_refusal(self, error: ErrorCode, controller_epoch: int) -> None:
        if error in REFUSALS:
            self._actor.note("", f"refused: {REFUSALS[error].format(controller_epoch)}")


class Actor(Host):
    """A host of the world that does what a transcript says. Takes the place of a puppet."""

    def __init__(self, world: World, broker_id: int, *, joins_election: bool) -> None:
        super().__init__(world, broker_id, f"broker-{broker_id}")
        self.joins_election = joins_election
        self.deeds: list[tuple[str, str]] = []
        self.requests: list[str] = []
        self.is_silent = False
        self._undeletable: set[TopicPartition] = set()
        self.held: HeldStore
        self.on_parts: Callable[[RecordedBroker], None] = lambda broker: None

    async def _run(self, process: Any) -> None:
        self.store = MemoryStore(self.world.server, session_timeout_ms=SESSION_TIMEOUT_MS)
        self.held = HeldStore(self.store)
        self.broker = RecordedBroker(
            self,
            self._read_along,
            BrokerConfig({**self.world.config, **self._settings()}),
            self.held,
            disk=self.disk.mounted(process),
            clock=self.clock,
            rng=self.world.dice(f"{self.name}/{self.starts}"),
            offload=on_the_spot,
            boot_id=f"{self.name}/{self.boots}",
        )
        await self.broker.start()

    def note(self, subject: str, deed: str) -> None:
        self.requests.append(deed)
        self.deeds.append((subject, deed))

    @property
    def real(self) -> RecordedBroker:
        assert isinstance(self.broker, RecordedBroker), f"broker {self.id} is not up"
        return self.broker

    @property
    def epoch(self) -> int:
        return self.real.epoch

    # What a transcript can do to it

    def silence(self) -> None:
        """No broker reaches this host, though its session with the store lives on."""
        self.is_silent = True
        for other in self.world.hosts.values():
            self.world.network.cut(other.name, self.name)

    def speak(self) -> None:
        self.is_silent = False
        for other in self.world.hosts.values():
            self.world.network.heal(other.name, self.name)

    async def fail_directory(self, key: TopicPartition) -> None:
        log = self.real.logs.get(key)
        assert log is not None
        self.disk.failed.add(log.directory.rpartition("/")[0])
        self._write(key)  # a disk that is not used is not known to have failed
        await until(lambda: key in self.real.replicas.partitions.offline, f"{key} to be offline")

    def mend_directory(self, key: TopicPartition) -> None:
        self.mend_disk()

    def refuse_deletion(self, key: TopicPartition) -> None:
        """Its deletions fail in an unforeseen way."""
        self._undeletable.add(key)

    def allow_deletion(self, key: TopicPartition) -> None:
        self._undeletable.discard(key)

    def check_deletion(self, key: TopicPartition) -> None:
        if key in self._undeletable:
            raise RuntimeError(f"planted: {key} cannot be deleted")

    # As leader

    async def change_isr(
        self, key: TopicPartition, isr: Iterable[int], *, notify: bool = True
    ) -> bool:
        """Let the replicas come and go until the ISR is this; answers whether it came to be."""
        gate, wanted = self.real.gate, tuple(isr)
        gate.taken.pop(key, None)
        if not notify:
            gate.unannounced.add(key)
        committed = self.real.replicas.partitions[key].leader.isr.committed
        if set(wanted) == set(committed):
            await self._lose(key, [id for id in wanted if id != self.id])
        else:
            await self._lose(key, [id for id in committed if id not in wanted])
        gate.wanted[key] = wanted
        await until(lambda: self._has(key, wanted), f"the ISR of {key} to be {wanted}")
        del gate.wanted[key]
        gate.unannounced.discard(key)
        return True

    async def _lose(self, key: TopicPartition, ids: list[int]) -> None:
        """Records are written that these replicas do not get, until the leader drops them."""
        if not ids:
            return
        committed = self.real.replicas.partitions[key].leader.isr.committed
        left = tuple(id for id in committed if id not in ids)
        self._cut_off(key, ids)
        self.real.gate.wanted[key] = left
        await until(lambda: self._has(key, left), f"{ids} to leave the ISR of {key}")
        self._let_back(ids)

    def _cut_off(self, key: TopicPartition, ids: Iterable[int]) -> None:
        for id in ids:
            self.world.network.cut(self.world.hosts[id].name, self.name)
        self._write(key)

    def _write(self, key: TopicPartition) -> None:
        batch = encode_batch([Record(0, self.clock(), None, b"written", ())])
        self.real.replicas.append(1, 1000, {key: batch})

    def _let_back(self, ids: Iterable[int]) -> None:
        for id in ids:
            self.world.network.heal(self.world.hosts[id].name, self.name)

    def _has(self, key: TopicPartition, isr: tuple[int, ...]) -> bool:
        return self.real.gate.taken.get(key) == isr

    async def _propose_isr(self, key: TopicPartition, isr: Iterable[int]) -> IsrChange:
        gate, wanted = self.real.gate, tuple(isr)
        committed = self.real.replicas.partitions[key].leader.isr.committed
        leaving = [id for id in committed if id not in wanted]
        if leaving:
            self._cut_off(key, leaving)
        gate.holding.add(key)
        gate.wanted[key] = wanted
        await until(lambda: key in gate.held, f"a proposal for {key}")
        del gate.wanted[key]
        self._let_back(leaving)
        return gate.held[key]

    async def decide_later(
        self, key: TopicPartition, isr: Iterable[int]
    ) -> Callable[[], Awaitable[bool]]:
        """Propose an ISR now; the function returned lets the proposal pass."""
        proposal = await self._propose_isr(key, isr)
        return lambda: self._let_pass(key, proposal)

    async def _let_pass(self, key: TopicPartition, proposal: IsrChange) -> bool:
        gate = self.real.gate
        gate.taken.pop(key, None)
        gate.land(key)
        await until(lambda: gate.is_idle, "the write to land")
        return self._has(key, proposal.state.isr)


def without_what_real_brokers_add(transcript: str) -> str:
    """A transcript without what depends on when and in how many steps leaders tell of their ISRs.

    - `IsrChangeNotification` lines: a real leader announces seconds after it has written, several
      changes at once, to the controller active then. What came of it is in other lines, which stay.
    - ISRs in the middle of an epoch: a real leader lets replicas go before it lets others in, one
      write each, and the controller may read between them. The first and last of an epoch stay.
    - Which partitions an UNKNOWN_SERVER_ERROR was for: a broker that fails in an unforeseen way
      reports it for the whole request.
    """
    lines = []
    for line in transcript.splitlines():
        if ISR_NOTIFICATION.match(line):
            continue
        if line.startswith("> leadership "):
            subject, _, chain = line.partition(": ")
            line = f"{subject}: {' -> '.join(_ends_of_epochs(chain.split(' -> ')))}"
        lines.append(UNFORESEEN.sub(r"\1", line))
    return "\n".join(lines) + "\n"


def _ends_of_epochs(states: list[str]) -> list[str]:
    kept: list[str] = []
    for _, group in itertools.groupby(states, key=lambda state: state.partition(" isr=")[0]):
        epoch = list(group)
        kept += [epoch[0], epoch[-1]] if len(epoch) > 1 else epoch
    return kept


async def until(condition: Callable[[], bool], what: str) -> None:
    """Virtual time passes until it is so."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + WAIT_S_MAX
    while not condition():
        assert loop.time() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(STEP_S)


class RealCluster(ScenarioCluster[Actor]):
    """Makes, kills and starts hosts of a world whose loop is running."""

    quiet_rounds = 15

    def __init__(self, world: World, config: Mapping[str, int | bool]) -> None:
        super().__init__(self._open_session, config)
        self.world = world
        world.readers.append(lambda host, entry: self._heard(host.id, entry))

    async def _open_session(self) -> MemoryStore:
        store = MemoryStore(self.world.server, session_timeout_ms=SESSION_TIMEOUT_MS)
        await store.start()
        return store

    async def start(self, id: int) -> None:
        """Power on; returns when clients are served."""
        actor = self._puppets.get(id)
        if actor is None:
            actor = Actor(self.world, id, joins_election=id in self.with_controller)
            self.world.hosts[id] = self._puppets[id] = actor
        actor.on_parts = self._configure
        actor.speak()
        actor.start()
        await until(
            lambda: actor.broker is not None and actor.broker.connections.is_serving,
            f"broker {id} to serve",
        )

    def _configure(self, broker: RecordedBroker) -> None:
        """The broker's parts are made: its controller gets the limits of the scenario."""
        for name, value in self.config.items():
            setattr(broker.controller.config, name, value)
        stands = broker.id in self.with_controller
        actor = self._puppets[broker.id]
        self.members[broker.id] = Member(actor, actor.held, broker.controller if stands else None)

    def controller(self, id: int | None = None) -> WiredController:
        """The controller of a node, or of the node with the active controller, over the wire."""
        return WiredController(self._puppets[self._elected(id).broker_id])

    async def kill(self, id: int) -> None:
        """SIGKILL; the store notices when the session has timed out."""
        self.members.pop(id).puppet.kill()
        await self._until_registered()

    async def close(self) -> None:
        await self.admin.session.close()

    async def expire(self, id: int) -> None:
        store = self.members[id].held.store
        assert isinstance(store, MemoryStore)
        self.world.server.expire(store)

    async def announce_config(self, topic: str) -> None:
        """The brokers read it, and the active controller acts on it."""
        await self.admin.configs.changes.notify(f"topics/{topic}")

    async def settle(self) -> None:
        await self._until_registered()
        await super().settle()

    async def _until_registered(self) -> None:
        tree = self.world.server.tree
        await until(
            lambda: set(map(int, tree.children(paths.BROKER_IDS))) == set(self.members),
            "dead brokers' sessions to end",
        )

    async def _look(self) -> None:
        await asyncio.sleep(STEP_S)

    def _is_at_rest(self) -> bool:
        gates = [member.puppet.real.gate for member in self.members.values()]
        return super()._is_at_rest() and all(gate.is_at_rest for gate in gates)

    def leader_of(self, key: TopicPartition) -> Actor:
        for member in self.members.values():
            partition = member.puppet.real.replicas.partitions.get(key)
            if partition is not None and partition.is_leader:
                return member.puppet
        raise AssertionError(f"no broker leads {key}")


def play_with_real_brokers(scenario: str) -> str:
    """The scenario as it goes today, in virtual time."""
    world = World(1, 0, CONFIG, LOG_DIRS)

    async def story(world: World) -> str:
        runner = Runner(lambda config: RealCluster(world, config))
        try:
            return await replay(scenario, runner)
        finally:
            await runner.close()

    with pytest.MonkeyPatch.context() as patch:
        # An ISR that a story names comes about replica by replica; the steps are not announced.
        patch.setattr(controller_notifications, "NOTIFY_SOONEST_S", ISR_SETTLES_S)
        transcript = world.run(story)
    assert world.loop.failures == []
    return transcript
