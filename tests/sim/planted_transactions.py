"""Bugs planted in transactions, one or more for each of their invariants.

`python -m tests.sim.planted_transactions` counts how many seeds it takes to find each.
"""

import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.sim.planted import Bug, Patches, attribute, main

from odradek.coordinator.offsets import GroupOffsets
from odradek.coordinator.storage import GroupReplay
from odradek.coordinator.transaction import NO_EPOCH, Transaction
from odradek.coordinator.transaction_coordinator import TransactionCoordinator
from odradek.coordinator.verification import Verification
from odradek.log.log import Log
from odradek.log.producers import ProducerStates
from odradek.sim.faults import Fault, Kind
from odradek.sim.plan import Plan, draw_plan
from odradek.wire.errors import ErrorCode, KafkaError

SECONDS = 30.0


def calm(seed: int) -> Plan:
    """No fault but those of the transactional clients themselves."""
    return _of_three(seed, [])


def killed(seed: int) -> Plan:
    """Brokers are killed, one after the other."""
    rng = random.Random(seed)
    faults = []
    at = 4.0
    while at < SECONDS:
        victim, other = rng.sample([1, 2, 3], 2)
        faults += [
            Fault(at, Kind.STORE_EXPIRE, victim, other, 0.05),
            Fault(at + 0.001, Kind.KILL, victim, other, 0.5),
        ]
        at += rng.uniform(2.0, 4.0)
    return _of_three(seed, faults)


def parted(seed: int) -> Plan:
    """Two brokers are cut off from each other, and soon one of them is lost: what it had, and the
    other has not, is gone; what a third was answered meanwhile is not."""
    rng = random.Random(seed)
    faults = []
    at = 4.0
    while at < SECONDS:
        lost, successor = rng.sample([1, 2, 3], 2)
        faults += [
            Fault(at, Kind.CUT, lost, successor, 3.0),
            Fault(at + 0.6, Kind.STORE_EXPIRE, lost, successor, 0.05),
            Fault(at + 0.601, Kind.KILL, lost, successor, 0.5),
        ]
        at += rng.uniform(3.2, 4.0)
    return _of_three(seed, faults, replication=2)


def _of_three(seed: int, faults: Sequence[Fault], replication: int = 3) -> Plan:
    plan = draw_plan(seed, SECONDS)
    load = replace(
        plan.load,
        producers=1,
        consumers=0,
        groups=0,
        admin=False,
        writers=5,
        movers=2,
        committed_consumers=2,
    )
    return replace(
        plan,
        brokers=3,
        replication=replication,
        min_isr=1,
        partitions=2,
        log_dirs=1,
        latency_s=0.01,
        settings={},
        faults=faults,
        load=load,
    )


def send_markers_at_once() -> Patches:
    """A decision counts when the coordinator has written it, before other replicas have it."""

    async def decide(self: Any, owned: Any, transaction: Any, transition: Any) -> None:
        self.storage.store(transaction.transactional_id, transition)
        transaction.complete(transition)
        self._finish(owned, transaction)

    return attribute(TransactionCoordinator, "_decide", decide)


def be_stable_at_append() -> Patches:
    """Readers go on when a marker is written, before it is replicated."""
    undecided = ProducerStates.first_undecided_offset
    return attribute(ProducerStates, "first_unstable_offset", undecided)


def fence_no_zombie() -> Patches:
    """The coordinator looks at a producer's id, not at its epoch."""

    def check(self: Transaction, producer_id: int, epoch: int) -> None:
        if producer_id != self.producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    return attribute(Transaction, "check_producer", check)


def keep_the_producer_epoch() -> Patches:
    """A successor gets the epoch that its predecessor has."""
    original = Transaction.initialize

    def initialize(self: Transaction, *arguments: Any, **options: Any) -> Any:
        before = self.epoch
        change = original(self, *arguments, **options)
        return change if before == NO_EPOCH else replace(change, epoch=before)

    return attribute(Transaction, "initialize", initialize)


def show_pending_offsets() -> Patches:
    """Offsets of a transaction count at once."""
    original = GroupOffsets.commit_in_transaction

    async def commit(
        self: GroupOffsets, group_id: str, producer: Any, member: Any, offsets: Mapping[Any, Any]
    ) -> Any:
        errors = await original(self, group_id, producer, member, offsets)
        group = self._storage.get(group_id)
        for tp, one in offsets.items():
            if group is not None and not errors[tp]:
                group.take_offset(tp, one)
        return errors

    return attribute(GroupOffsets, "commit_in_transaction", commit)


def forget_pending_offsets() -> Patches:
    """A new group coordinator drops the offsets of transactions that are undecided."""
    original = GroupReplay.entries

    def entries(self: GroupReplay) -> Any:
        self._pending.clear()
        return original(self)

    return attribute(GroupReplay, "entries", entries)


def drop_offsets() -> Patches:
    """What a transaction has committed for a group is dropped with its marker."""
    original = GroupOffsets.end_transaction

    async def end(self: GroupOffsets, partition: int, producer_id: int, is_commit: bool) -> None:
        await original(self, partition, producer_id, False)

    return attribute(GroupOffsets, "end_transaction", end)


def lose_markers_at_failover() -> Patches:
    """A new coordinator does not finish what its predecessor has decided."""
    return attribute(TransactionCoordinator, "_loaded", lambda self, owned: None)


def verify_nothing() -> Patches:
    return attribute(Verification, "is_enabled", property(lambda self: False))


def forget_what_was_aborted() -> Patches:
    return attribute(Log, "aborted_transactions", lambda self, start, end: [])


def take_every_outcome_for_an_abort() -> Patches:
    original = ProducerStates.apply

    def apply(self: ProducerStates, update: Any) -> Any:
        update.completed = [each._replace(aborted=True) for each in update.completed]
        return original(self, update)

    return attribute(ProducerStates, "apply", apply)


BUGS = [
    Bug(
        "markers are sent before their decision is replicated",
        frozenset({"TransactionsAreAtomic", "CommittedIsReadWhole"}),
        send_markers_at_once,
        11,
        parted,
    ),
    Bug(
        "the last stable offset moves when a marker is appended",
        frozenset({"LastStableOffsetNeverGoesBack"}),
        be_stable_at_append,
        1001,
        parted,
    ),
    Bug("a zombie is not fenced", frozenset({"ZombiesAreFenced"}), fence_no_zombie, 1, calm),
    Bug(
        "a successor gets its predecessor's epoch",
        frozenset({"OneOwnerPerEpoch"}),
        keep_the_producer_epoch,
        1,
        calm,
    ),
    Bug(
        "pending offsets are visible",
        frozenset({"PendingOffsetsInvisible"}),
        show_pending_offsets,
        1,
        calm,
    ),
    Bug(
        "offsets in transactions are dropped",
        frozenset({"CopiedExactlyOnce"}),
        drop_offsets,
        1,
        calm,
    ),
    Bug(
        "offsets that are pending at a failover are dropped",
        frozenset({"CopiedExactlyOnce", "OffsetsNeverForgotten"}),
        forget_pending_offsets,
        3,
        killed,
    ),
    Bug("markers are lost at a failover", frozenset(), lose_markers_at_failover, 1, killed),
    Bug(
        "leaders do not verify transactions",
        frozenset({"OnlyCommittedIsRead", "TransactionsAreAtomic"}),
        verify_nothing,
        1,
        calm,
    ),
    Bug(
        "readers are not told what was aborted",
        frozenset({"OnlyCommittedIsRead"}),
        forget_what_was_aborted,
        1,
        calm,
    ),
    Bug(
        "every outcome counts as an abort",
        frozenset({"CommittedIsReadWhole"}),
        take_every_outcome_for_an_abort,
        1,
        calm,
    ),
]


if __name__ == "__main__":
    main(BUGS, sys.argv[1:])
