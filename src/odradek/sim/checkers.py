"""The invariants, one checker each, named as in the literature.

A checker sees every write of a partition's state and every line of a controller's journal,
looks at the world every quarter of a virtual second (`look`), and judges the evidence when
everything has healed (`judge`). It reads the store, the brokers' own objects and the history of the
clients; it changes nothing. Each can fail: tests plant a bug for each and show that it is found.

Four invariants are checked where clients see them, in `workload` and `members`: ConsistentRead,
NothingSkipped, HighWatermarkNeverGoesBack, OffsetsNeverForgotten.
"""

from collections import Counter
from collections.abc import Sequence

from odradek.broker.server import Broker
from odradek.controller import partition_states, replica_states
from odradek.controller.journal import Entry, EntryKind
from odradek.controller.reassignment_rules import Step as MoveStep
from odradek.log.directories import DirectoryKind, parse_name
from odradek.log.log import Log
from odradek.replica.leader.partition_counts import walk_counts
from odradek.store import paths
from odradek.store.memory import MemoryStore
from odradek.store.payloads import TopicNode
from odradek.wire.topics import TopicPartition

from .history import History
from .observation import Hosted, StateWrite, batches_of, hosted, leaders, records_of
from .world import Host, World

NON_EXISTENT = "NON_EXISTENT"
# A wrong count stays wrong, and to look at every partition for it costs as much as all the others.
COUNTED_EVERY = 4


class Checker:
    """One invariant; what it does not care for, it does not override."""

    name: str

    def __init__(self, world: World, history: History) -> None:
        self.world = world
        self.history = history

    def look(self, hosted: Hosted) -> None:
        """Compare what is with what may be, now; given every partition on every broker."""

    def judge(self) -> None:
        """After everything has healed."""
        self.look(list(hosted(self.world)))

    def written(self, write: StateWrite) -> None:
        """A partition's state was written."""

    def assigned(self, topic: str, before: TopicNode | None, after: TopicNode) -> None:
        """A topic's assignment was written."""

    def journalled(self, host: Host, entry: Entry) -> None:
        """A controller did something."""

    def violated(self, what: str) -> None:
        self.history.violated(self.name, self.world.loop.time(), what)


class NoCommittedRecordLost(Checker):
    """A record acknowledged with acks=all is in the log for good, at its offset."""

    name = "NoCommittedRecordLost"

    def judge(self) -> None:
        leading = leaders(self.world)
        logs = {of: [partition.local_log] for of, partition in leading.items()}
        for _, partition in hosted(self.world):
            of = partition.tp
            if of not in leading and self.history.waits_for_an_operator(of):
                # The operator may elect any of them: one must have the record.
                logs.setdefault(of, []).append(partition.local_log)
        for of in {**self.history.acknowledged, **self.history.somewhere}:
            acknowledged = self.history.acknowledged.get(of, {})
            if self.history.protected(of):
                self._look_for(of, acknowledged, logs.get(of, []))
                self._compare_with_reads(of, acknowledged)

    def _look_for(
        self, of: TopicPartition, acknowledged: dict[int, bytes], logs: Sequence[Log]
    ) -> None:
        if not logs:
            self.violated(f"{of} has no leader to ask")
            return
        found: dict[int, set[bytes | None]] = {}
        for log in logs:
            for record in records_of(log):
                found.setdefault(record.offset, set()).add(record.value)
        for offset, value in acknowledged.items():
            if value not in found.get(offset, ()):
                self.violated(
                    f"{of} offset {offset}: acknowledged {value!r}, found {found.get(offset)!r}"
                )
        values = set().union(*found.values())
        for value in self.history.somewhere.get(of, ()):
            if value not in values:
                self.violated(f"{of}: acknowledged {value!r}, found nowhere")

    def _compare_with_reads(self, of: TopicPartition, acknowledged: dict[int, bytes]) -> None:
        read = self.history.read.get(of, {})
        for offset in acknowledged.keys() & read.keys():
            if acknowledged[offset] != read[offset]:
                self.violated(
                    f"{of} offset {offset}: acknowledged {acknowledged[offset]!r}, read "
                    f"{read[offset]!r}"
                )


class LeaderCompleteness(Checker):
    """An elected leader has every committed record."""

    name = "LeaderCompleteness"

    def __init__(self, world: World, history: History) -> None:
        super().__init__(world, history)
        self._seen: set[tuple[TopicPartition, int]] = set()
        # What had been acknowledged when an epoch was decided.
        self._before: dict[tuple[TopicPartition, int], int] = {}

    def written(self, write: StateWrite) -> None:
        of, after = write.of, write.after
        acknowledged = self.history.last_acknowledged.get(of, -1)
        self._before.setdefault((of, after.leader_epoch), acknowledged)

    def look(self, hosted: Hosted) -> None:
        for broker, partition in hosted:
            of = partition.tp
            election = (of, partition.leader_epoch)
            if not partition.is_leader or election in self._seen or not self.history.protected(of):
                continue
            state = self.world.ledger.states.get(of)
            self._seen.add(election)
            acknowledged = self.history.last_acknowledged.get(of, -1)
            if state is not None and state.leader_epoch > partition.leader_epoch:
                # Elected while it was paused, say, and deposed before it knew.
                acknowledged = self._before.get(election, -1)
            if acknowledged >= partition.local_log.end_offset:
                self.violated(
                    f"{of} epoch {partition.leader_epoch}: broker {broker.id} leads with end "
                    f"{partition.local_log.end_offset}, but offset {acknowledged} was acknowledged"
                )


class LogMatching(Checker):
    """Replicas of a partition agree up to the smaller of their high watermarks."""

    name = "LogMatching"

    def judge(self) -> None:
        by_partition: dict[TopicPartition, list[tuple[int, Log]]] = {}
        for broker, partition in hosted(self.world):
            entry = (broker.id, partition.local_log)
            by_partition.setdefault(partition.tp, []).append(entry)
        for of, replicas in by_partition.items():
            if self.history.protected(of):
                self._compare(of, replicas)

    def _compare(self, of: TopicPartition, replicas: list[tuple[int, Log]]) -> None:
        (first, log), *others = replicas
        batches = _batches_below(log, log.high_watermark)
        for other, other_log in others:
            start = max(log.start_offset, other_log.start_offset)
            end = min(log.high_watermark, other_log.high_watermark)
            if _batches_below(other_log, end) == {
                offset: batch for offset, batch in batches.items() if offset < end
            }:
                continue  # the same bytes are the same records: most need not be opened
            ours, theirs = _contents(log, start, end), _contents(other_log, start, end)
            for offset in sorted(ours.keys() | theirs.keys()):
                known, found = ours.get(offset), theirs.get(offset)
                if (known is None or found is None) and log.config.compact:
                    continue  # deleted by one already, as it will be by the other
                if known != found:
                    self.violated(
                        f"{of} offset {offset}: broker {other} has {found!r}, "
                        f"broker {first} {known!r}"
                    )
                    break


def _batches_below(log: Log, end: int) -> dict[int, bytes]:
    return {
        header.base_offset: piece[header.position : header.end_position]
        for header, piece in batches_of(log, end)
    }


def _contents(log: Log, start: int, end: int) -> dict[int, tuple[bytes | None, bytes | None]]:
    return {r.offset: (r.key, r.value) for r in records_of(log, end) if r.offset >= start}


class OneLeaderPerEpoch(Checker):
    """No two brokers lead a partition in the same epoch."""

    name = "OneLeaderPerEpoch"

    def __init__(self, world: World, history: History) -> None:
        super().__init__(world, history)
        self._leaders: dict[tuple[TopicPartition, int], int] = {}

    def look(self, hosted: Hosted) -> None:
        for broker, partition in hosted:
            if partition.is_leader and self.history.protected(partition.tp):
                key = (partition.tp, partition.leader_epoch)
                known = self._leaders.setdefault(key, broker.id)
                if known != broker.id:
                    self.violated(f"{key[0]} epoch {key[1]}: both {known} and {broker.id} lead")


class IsrWithinAssignment(Checker):
    """The ISR is part of the assignment, and its last member stays."""

    name = "IsrWithinAssignment"

    def look(self, hosted: Hosted) -> None:
        ledger = self.world.ledger
        for of, state in ledger.states.items():
            node = ledger.topics.get(of.topic)
            replicas = () if node is None else node.partitions.get(of.partition, ())
            if node is not None and not set(state.isr) <= set(replicas):
                self.violated(f"{of} has ISR {list(state.isr)} of replicas {sorted(replicas)}")

    def written(self, write: StateWrite) -> None:
        of, before, after = write.of, write.before, write.after
        if not after.isr:
            self.violated(f"{of} has an empty ISR in epoch {after.leader_epoch}")
        elif before is not None and not set(before.isr) & set(after.isr):
            self.violated(f"{of} went from ISR {list(before.isr)} to {list(after.isr)}")


class EpochsOnlyGrow(Checker):
    """Leader epochs and controller epochs never go back, nor does the epoch of who decided."""

    name = "EpochsOnlyGrow"

    def __init__(self, world: World, history: History) -> None:
        super().__init__(world, history)
        self._controller = 0
        self._hosted: dict[tuple[str, int, TopicPartition], int] = {}

    def look(self, hosted: Hosted) -> None:
        epoch = self.world.ledger.controller_epoch
        if epoch < self._controller:
            self.violated(f"controller epoch {self._controller} to {epoch}")
        self._controller = epoch
        for broker, partition in hosted:
            if not self.history.protected(partition.tp):
                continue
            host = self.world.hosts[broker.id]
            key = (host.name, host.starts, partition.tp)
            known = self._hosted.get(key, -1)
            if -1 < partition.leader_epoch < known:
                self.violated(
                    f"{partition.tp} on broker {broker.id} went from leader epoch "
                    f"{known} to {partition.leader_epoch}"
                )
            self._hosted[key] = partition.leader_epoch

    def written(self, write: StateWrite) -> None:
        of, before, after = write.of, write.before, write.after
        if before is not None and (
            after.leader_epoch < before.leader_epoch
            or after.controller_epoch < before.controller_epoch
        ):
            self.violated(f"{of} went from {before} to {after}")
        if (
            before is not None
            and after.leader_epoch == before.leader_epoch
            and after.leader != before.leader
        ):
            self.violated(f"{of} has another leader in the same epoch: {before} to {after}")
        if after.controller_epoch > self.world.ledger.controller_epoch:
            self.violated(f"{of} was decided in epoch {after.controller_epoch}, which is to come")


class FencedControllerChangesNothing(Checker):
    """Once another controller is active, no broker obeys the earlier one.

    Seen in two places. A decision (a higher leader epoch) is written in the active epoch, or by
    a broker that has not registered yet and takes itself out of an ISR. And a broker that has heard
    of a controller does not take orders from an earlier one.
    """

    name = "FencedControllerChangesNothing"

    def __init__(self, world: World, history: History) -> None:
        super().__init__(world, history)
        self._heard: dict[tuple[str, int], int] = {}

    def written(self, write: StateWrite) -> None:
        of, before, after = write.of, write.before, write.after
        active = self.world.ledger.controller_epoch
        decided = before is None or after.leader_epoch > before.leader_epoch
        if decided and after.controller_epoch < active and not self._is_leaving(write.writer):
            self.violated(
                f"{of} was decided by the controller of epoch {after.controller_epoch} while "
                f"{active} is active: {after}"
            )

    def _is_leaving(self, writer: MemoryStore) -> bool:
        host = writing_host(self.world, writer)
        return host.broker is not None and host.broker.epoch == -1

    def look(self, hosted: Hosted) -> None:
        for broker in self.world.brokers():
            if hasattr(broker, "replicas"):
                host = self.world.hosts[broker.id]
                key = (host.name, host.starts)
                heard = broker.replicas.control_requests.controller_epoch
                if heard < self._heard.get(key, 0):
                    self.violated(
                        f"broker {broker.id} had heard of controller epoch {self._heard[key]} and "
                        f"obeyed {heard}"
                    )
                self._heard[key] = heard


class OnlyTheRegisteredBrokerWrites(Checker):
    """A partition's state is written only in the session that holds the writer's broker id.

    So neither a second process with the id of a running broker writes on its behalf, nor one that
    was paused while another took its id.
    """

    name = "OnlyTheRegisteredBrokerWrites"

    def written(self, write: StateWrite) -> None:
        of, before, after = write.of, write.before, write.after
        host = writing_host(self.world, write.writer)
        registration = self.world.server.tree.exists(paths.broker(host.id))
        if registration is None or registration.owner != write.writer.session_id:
            holder = "no session" if registration is None else f"session {registration.owner}"
            self.violated(
                f"{of} was written by {host.name} in session {write.writer.session_id}, while "
                f"{holder} has broker id {host.id}: {before} to {after}"
            )


def writing_host(world: World, writer: MemoryStore) -> Host:
    return next(machine for machine in world.machines if machine.store is writer)


class StatesWithinTables(Checker):
    """No partition or replica is ever in a state, or comes into one, that the tables do not have.

    The tables are written out here once more, so that a change of the controller's is noticed.
    """

    name = "StatesWithinTables"

    PARTITION_ROWS = frozenset(
        {
            ("NON_EXISTENT", "NEW"),
            ("NEW", "ONLINE"),
            ("ONLINE", "ONLINE"),
            ("OFFLINE", "ONLINE"),
            ("NEW", "OFFLINE"),
            ("ONLINE", "OFFLINE"),
            ("OFFLINE", "OFFLINE"),
            ("OFFLINE", "NON_EXISTENT"),
        }
    )
    REPLICA_ROWS = frozenset(
        {
            ("NON_EXISTENT", "NEW"),
            ("NEW", "ONLINE"),
            ("ONLINE", "ONLINE"),
            ("OFFLINE", "ONLINE"),
            ("DELETION_INELIGIBLE", "ONLINE"),
            ("NEW", "OFFLINE"),
            ("ONLINE", "OFFLINE"),
            ("OFFLINE", "OFFLINE"),
            ("DELETION_INELIGIBLE", "OFFLINE"),
            ("OFFLINE", "DELETION_STARTED"),
            ("DELETION_STARTED", "DELETION_SUCCESSFUL"),
            ("OFFLINE", "DELETION_INELIGIBLE"),
            ("DELETION_STARTED", "DELETION_INELIGIBLE"),
            ("DELETION_SUCCESSFUL", "NON_EXISTENT"),
        }
    )

    def __init__(self, world: World, history: History) -> None:
        super().__init__(world, history)
        # What each controller has last recorded, in its present term.
        self._last: dict[tuple[int, int, object], str] = {}

    def journalled(self, host: Host, entry: Entry) -> None:
        if entry.kind is EntryKind.PARTITION:
            rows, subject = self.PARTITION_ROWS, str(entry.partition)
        elif entry.kind is EntryKind.REPLICA:
            rows, subject = self.REPLICA_ROWS, f"{entry.partition}@{entry.broker}"
        else:
            return
        row = (entry.before, entry.after)
        self.history.transition(f"{entry.kind} {entry.before} -> {entry.after}")
        if row not in rows:
            self.violated(f"{subject} went from {entry.before} to {entry.after}")
        key = (host.starts, entry.controller_epoch, (host.name, subject))
        last = self._last.get(key)
        if last is not None and last != entry.before:
            self.violated(f"{subject} was {last}, and went from {entry.before} to {entry.after}")
        if entry.after == NON_EXISTENT:
            self._last.pop(key, None)
        else:
            self._last[key] = entry.after


class NoDuplicates(Checker):
    """An idempotent producer's record stands in the log once."""

    name = "NoDuplicates"

    def judge(self) -> None:
        seen: dict[bytes, tuple[TopicPartition, int]] = {}
        for of, partition in leaders(self.world).items():
            if not self.history.protected(of):
                continue
            for record in records_of(partition.local_log):
                if record.value is None or record.value not in self.history.idempotent:
                    continue
                if record.value in seen:
                    self.violated(
                        f"{record.value!r} is at {seen[record.value]} and at {of} {record.offset}"
                    )
                seen[record.value] = (of, record.offset)


class OrderKept(Checker):
    """What an idempotent producer sent to a partition is acknowledged in the order sent, however
    many requests it had under way."""

    name = "OrderKept"

    def judge(self) -> None:
        for of, acknowledged in self.history.acknowledged.items():
            last: dict[bytes, tuple[int, int]] = {}
            for offset in sorted(acknowledged) if self.history.protected(of) else ():
                value = acknowledged[offset]
                producer, _, number = value.rpartition(b":")
                if value not in self.history.idempotent or not number.isdigit():
                    continue  # a transaction's, which is sent one by one
                before, at = last.get(producer, (-1, -1))
                if int(number) < before:
                    self.violated(f"{of}: {value!r} is at {offset}, a later one at {at}")
                last[producer] = (int(number), offset)


class DeletedIsGone(Checker):
    """Nothing of a deleted topic is left on any broker, and one that is created again under its
    name has none of its records."""

    name = "DeletedIsGone"

    def judge(self) -> None:
        for broker, partition in hosted(self.world):
            of = partition.tp
            if of.topic not in self.world.ledger.topics:
                self.violated(f"{of} was deleted, and broker {broker.id} has it")
            deletions = self.history.deleted.get(of.topic, 0)
            for record in records_of(partition.local_log) if deletions else ():
                written = record.value or b""  # what shows that the topic is served has no number
                if written.isdigit() and int(written) < deletions:
                    self.violated(
                        f"{of} offset {record.offset} on broker {broker.id} was written before "
                        f"deletion {deletions}, when there had been {int(written)}"
                    )
                    break


class OneDirectoryPerReplica(Checker):
    """A replica is in one log directory of its broker, and no half of a move is left."""

    name = "OneDirectoryPerReplica"

    def judge(self) -> None:
        for host in self.world.hosts.values():
            found: dict[TopicPartition, str] = {}
            for directory in host.directories:
                for name in sorted(host.disk.directories.get(directory, ())):
                    if f"{directory}/{name}" in host.disk.files:
                        continue
                    of, kind = parse_name(name)
                    if kind is DirectoryKind.FUTURE and self.world.ledger.is_replica(host.id, of):
                        self.violated(f"{name} is left in {directory} of broker {host.id}")
                    if kind is DirectoryKind.CURRENT and of in found:
                        self.violated(
                            f"{of} is in {found[of]} and in {directory} of broker {host.id}"
                        )
                    if kind is DirectoryKind.CURRENT:
                        found[of] = directory


class DamageHasACause(Checker):
    """No broker finds a log damaged, or shorter than what was synced, unless its disk was damaged:
    what kills, failures of disks and power losses leave, a start puts right by itself."""

    name = "DamageHasACause"

    def __init__(self, world: World, history: History) -> None:
        super().__init__(world, history)
        self._seen: set[str] = set()

    def look(self, hosted: Hosted) -> None:
        for broker in self.world.brokers():
            if self.world.hosts[broker.id].disk.was_damaged or not hasattr(broker, "logs"):
                continue
            for tp, damage in broker.logs.damaged.found.items():
                what = f"broker {broker.id}: {tp}: {damage.reason}"
                if what not in self._seen:
                    self._seen.add(what)
                    self.violated(what)


class CountsAgree(Checker):
    """What a broker counts as it goes is what a walk over its partitions finds, and no counter
    of its traffic ever falls."""

    name = "CountsAgree"

    def __init__(self, world: World, history: History) -> None:
        super().__init__(world, history)
        self._counted: dict[Broker, dict[str, int]] = {}
        self._looks = 0

    def look(self, hosted: Hosted) -> None:
        self._looks += 1
        if self._looks % COUNTED_EVERY:
            return
        running = [broker for broker in self.world.brokers() if hasattr(broker, "replicas")]
        for broker in running:
            replicas = broker.replicas
            counted = replicas.counts.statistics()
            walked = walk_counts(replicas.partitions.led()).statistics()
            if counted != walked:
                self.violated(f"broker {broker.id} counts {counted}, there are {walked}")
            traffic = replicas.traffic.statistics()
            before = self._counted.get(broker, {})
            fallen = [name for name, count in traffic.items() if count < before.get(name, 0)]
            if fallen:
                self.violated(f"broker {broker.id}: {', '.join(fallen)} fell")
            self._counted[broker] = traffic
        self._counted = {broker: self._counted[broker] for broker in running}


class _PlanChecker(Checker):
    """Looks at the steps of plans as they begin."""

    def assigned(self, topic: str, before: TopicNode | None, after: TopicNode) -> None:
        planned = self.world.ledger.plan_moves()
        for number, replicas in after.partitions.items():
            of = TopicPartition(topic, number)
            if before is None or number not in before.partitions or of not in planned:
                continue
            adding = after.adding.get(number, ())
            if adding and adding != before.adding.get(number, ()):
                self.begun(of, tuple(adding))
            origin = len(before.partitions[number]) - len(before.adding.get(number, ()))
            self.rewritten(of, origin, len(replicas))

    def begun(self, of: TopicPartition, adding: tuple[int, ...]) -> None:
        """A step of a plan begins."""

    def rewritten(self, of: TopicPartition, before: int, after: int) -> None:
        """A partition of a plan had so many replicas and has so many."""


class MovesWithinLimits(_PlanChecker):
    """A step of a plan begins only where its brokers take part in few enough moves, whichever
    controller began those."""

    name = "MovesWithinLimits"

    def begun(self, of: TopicPartition, adding: tuple[int, ...]) -> None:
        limit = int(self.world.config["odradek.moves.per.broker.max"])
        counts = Counter[int]()
        for topic, node in self.world.ledger.topics.items():
            for number, added in node.adding.items():
                leader = self._leader(TopicPartition(topic, number))
                if leader >= 0:  # otherwise nothing is copied
                    counts.update({*added, leader})
        for broker in (*adding, self._leader(of)):
            if counts[broker] > limit:
                self.violated(f"{of}: broker {broker} takes part in {counts[broker]} moves")

    def _leader(self, of: TopicPartition) -> int:
        state = self.world.ledger.states.get(of)
        return -1 if state is None else state.leader


class MovesKeepReplicas(_PlanChecker):
    """A plan changes one replica of a partition at a time, and at no moment are there fewer than
    before."""

    name = "MovesKeepReplicas"

    def begun(self, of: TopicPartition, adding: tuple[int, ...]) -> None:
        if len(adding) > 1:
            self.violated(f"{of}: {list(adding)} are added at once")

    def rewritten(self, of: TopicPartition, before: int, after: int) -> None:
        if after < before:
            self.violated(f"{of}: {before} replicas became {after}")


class MovesKeepMinIsr(_PlanChecker):
    """A replica leaves for a plan only after all that the step wants have been in sync: the move
    takes no partition under its min ISR."""

    name = "MovesKeepMinIsr"

    def __init__(self, world: World, history: History) -> None:
        super().__init__(world, history)
        self._complete: set[TopicPartition] = set()

    def begun(self, of: TopicPartition, adding: tuple[int, ...]) -> None:
        self._complete.discard(of)

    def written(self, write: StateWrite) -> None:
        of, after = write.of, write.after
        if self._target(of) <= set(after.isr):
            self._complete.add(of)

    def journalled(self, host: Host, entry: Entry) -> None:
        of = entry.partition
        if entry.kind is not EntryKind.REASSIGNMENT or of is None:
            return
        node = self.world.ledger.topics.get(of.topic)
        is_step = of in self.world.ledger.plan_moves() and node is not None
        if not is_step or not entry.after.startswith(MoveStep.STOP_REMOVING.value):
            return
        assert node is not None
        if node.adding.get(of.partition) and of not in self._complete:
            self.violated(f"{of}: not all of {sorted(self._target(of))} were ever in sync")

    def _target(self, of: TopicPartition) -> set[int]:
        node = self.world.ledger.topics.get(of.topic)
        if node is None:
            return set()
        replicas = node.partitions.get(of.partition, ())
        return set(replicas) - set(node.removing.get(of.partition, ()))


CHECKERS: Sequence[type[Checker]] = (
    NoCommittedRecordLost,
    LeaderCompleteness,
    LogMatching,
    OneLeaderPerEpoch,
    IsrWithinAssignment,
    EpochsOnlyGrow,
    FencedControllerChangesNothing,
    OnlyTheRegisteredBrokerWrites,
    StatesWithinTables,
    NoDuplicates,
    OrderKept,
    DeletedIsGone,
    OneDirectoryPerReplica,
    DamageHasACause,
    CountsAgree,
    MovesWithinLimits,
    MovesKeepReplicas,
    MovesKeepMinIsr,
)


def table_rows() -> list[str]:
    """Every legal transition, as the summary of many runs counts them."""
    return [
        *(
            f"{EntryKind.PARTITION} {before.name} -> {after.name}"
            for after, befores in partition_states.VALID_PREVIOUS.items()
            for before in sorted(befores)
        ),
        *(
            f"{EntryKind.REPLICA} {before.name} -> {after.name}"
            for after, befores in replica_states.VALID_PREVIOUS.items()
            for before in sorted(befores)
        ),
    ]
