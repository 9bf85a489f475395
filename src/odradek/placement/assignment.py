"""Automatic assignment: which brokers hold the replicas of new partitions.

Three promises: leaders and replicas are spread evenly over the brokers; the other replicas of what
one broker leads are spread over all the others; and, when brokers have racks, a partition's
replicas are in as many racks as it has replicas. The arithmetic is Kafka's own, so that both place
a topic alike from the same start. docs/spec/controller-and-replication.md, sections 1.1 and 1.2.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from random import Random
from typing import NamedTuple

from odradek.wire.errors import ErrorCode, KafkaError


class Broker(NamedTuple):
    """A broker that may hold replicas, and the rack it stands in, if that is known."""

    id: int
    rack: str | None = None


class RackAwareMode(Enum):
    """What to do with racks: use them or fail, use them if all have one, or leave them aside."""

    ENFORCED = "enforced"
    SAFE = "safe"
    DISABLED = "disabled"


def brokers_to_use(
    brokers: Iterable[Broker], mode: RackAwareMode = RackAwareMode.ENFORCED
) -> list[Broker]:
    """The brokers sorted by id, with the racks that the mode leaves them."""
    ordered = sorted(brokers, key=_id)
    without_rack = sum(broker.rack is None for broker in ordered)
    mixed = 0 < without_rack < len(ordered)
    if mode is RackAwareMode.ENFORCED and mixed:
        raise _mixed_racks()
    if mode is RackAwareMode.DISABLED or mixed:
        return [Broker(broker.id) for broker in ordered]
    return ordered


def assign_replicas(
    brokers: Iterable[Broker],
    partitions: int,
    replication_factor: int,
    *,
    fixed_start: int | None = None,
    start_partition: int | None = None,
    rng: Random | None = None,
) -> dict[int, list[int]]:
    """Replicas for `partitions` new partitions, the preferred leader first.

    Without racks the brokers are taken in the order given. `fixed_start` fixes where the first
    replica and the shift between replicas begin (both are drawn from `rng` otherwise);
    `start_partition` is the id of the first new partition.
    """
    brokers = list(brokers)
    if partitions <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "There must be at least one partition.")
    if replication_factor <= 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "The replication factor must be at least 1."
        )
    if replication_factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: "
            f"{len(brokers)}.",
        )
    if fixed_start is not None and fixed_start >= 0:
        start = shift = fixed_start
    else:
        rng = rng or Random()
        start, shift = rng.randrange(len(brokers)), rng.randrange(len(brokers))
    first = max(0, start_partition or 0)
    if all(broker.rack is None for broker in brokers):
        ids = [broker.id for broker in brokers]
        return _rack_unaware(ids, partitions, replication_factor, start, shift, first)
    return _rack_aware(brokers, partitions, replication_factor, start, shift, first)


def rack_alternated(brokers: Iterable[Broker]) -> list[int]:
    """Broker ids, one of each rack in turn: racks in order of name, ids ascending in each."""
    by_rack: dict[str, list[int]] = {}
    for broker_id, rack in sorted(brokers, key=_id):
        if rack is None:
            raise _mixed_racks()
        by_rack.setdefault(rack, []).append(broker_id)
    # Java compares strings by UTF-16 unit, and the order must be the same on both sides.
    racks = [by_rack[name] for name in sorted(by_rack, key=_utf16)]
    rounds = max(map(len, racks), default=0)
    return [ids[turn] for turn in range(rounds) for ids in racks if turn < len(ids)]


def _rack_unaware(
    ids: Sequence[int], partitions: int, replication_factor: int, start: int, shift: int, first: int
) -> dict[int, list[int]]:
    count = len(ids)
    ring = [*ids, *ids]
    followers = range(replication_factor - 1)
    offsets = [0, *(1 + (shift + step) % (count - 1) for step in followers)]
    assignment = {}
    for partition in range(first, first + partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
            offsets = [0, *(1 + (shift + step) % (count - 1) for step in followers)]
        leader = (partition + start) % count
        assignment[partition] = [ring[leader + offset] for offset in offsets]
    return assignment


def _rack_aware(
    brokers: Sequence[Broker],
    partitions: int,
    replication_factor: int,
    start: int,
    shift: int,
    first: int,
) -> dict[int, list[int]]:
    ids = rack_alternated(brokers)
    rack_of = dict(brokers)
    bit_of = {rack: 1 << position for position, rack in enumerate(set(rack_of.values()))}
    rack_count, all_racks = len(bit_of), (1 << len(bit_of)) - 1
    bits = [bit_of[rack_of[broker_id]] for broker_id in ids]
    # Twice round, so that an index past the end needs no modulo.
    ring = list(zip(ids, bits, _runs(bits), strict=True)) * 2
    count = len(ids)
    others = count - 1
    shift_offset = shift * rack_count
    assignment = {}
    for partition in range(first, first + partitions):
        if partition > 0 and partition % count == 0:
            shift_offset += rack_count
        leader_index = (partition + start) % count
        leader, racks, _ = ring[leader_index]
        replicas = [leader]
        candidate = shift_offset
        while len(replicas) < replication_factor:
            step = candidate % others
            broker, rack, run = ring[leader_index + 1 + step]
            candidate += 1
            # A broker already used is in a rack already used, so it needs a look of its own only
            # once every rack has a replica.
            if broker not in replicas if racks == all_racks else not racks & rack:
                replicas.append(broker)
                racks |= rack
            elif racks != all_racks:
                # The rest of the run is refused for the same reason; the leader ends it.
                candidate += min(run, others - step) - 1
        assignment[partition] = replicas
    return assignment


def _runs(bits: Sequence[int]) -> list[int]:
    """For each place, how many places from it on are in the same rack, up to the list's end."""
    runs = [1] * len(bits)
    for place in range(len(bits) - 2, -1, -1):
        if bits[place] == bits[place + 1]:
            runs[place] = runs[place + 1] + 1
    return runs


def _id(broker: Broker) -> int:
    return broker.id


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _mixed_racks() -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        "Some brokers have a rack and others have none: replicas cannot be placed by rack. Give "
        "every broker a rack, or leave racks aside (--disable-rack-aware).",
    )
