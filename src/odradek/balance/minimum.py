"""A minimum of leaders: each broker leads at least so many partitions of a topic.

For topics that watch brokers, as canaries do: a broker that leads none of them is not watched. The
rule is hard. It is met first, by leaderships where a replica is there already and by moving a
replica where none is, and from then on the topic stays where it is.
"""

from collections import Counter

import numpy as np

from odradek.balance import kernels
from odradek.balance.kernels import State
from odradek.balance.model import Cluster
from odradek.balance.rules import Array

MINIMUM = "minimum of leaders"


def takers(cluster: Cluster, topic: int) -> list[int]:
    """The brokers that may lead a topic."""
    f = cluster.problem
    found: list[int] = np.flatnonzero(f.allowed[f.group[topic]]).tolist()
    return found


def lacking(cluster: Cluster, topic: int, minimum: int, broker: Array, leader: Array) -> int:
    """How many leaders brokers lack of a topic."""
    parts = np.flatnonzero(cluster.problem.topic == topic)
    led = Counter(broker[leader[parts]].tolist())
    return sum(max(0, minimum - led[taker]) for taker in takers(cluster, topic))


def too_few_partitions(cluster: Cluster, topic: int, minimum: int) -> str:
    """Why a minimum cannot be met, for a person to check; empty if it could."""
    parts = int((cluster.problem.topic == topic).sum())
    brokers = len(takers(cluster, topic))
    if parts >= brokers * minimum:
        return ""
    return (
        f"{cluster.topics[topic]} has {parts} partitions, and {brokers} brokers with {minimum} "
        f"each need {brokers * minimum}"
    )


def meet_minimum(cluster: Cluster, state: State, topic: int, minimum: int) -> None:
    """Have each broker lead enough of a topic, as far as its partitions suffice."""
    parts = np.flatnonzero(cluster.problem.topic == topic).tolist()
    brokers = takers(cluster, topic)
    led = Counter(state.broker[state.leader[parts]].tolist())
    for taker in brokers:
        while led[taker] < minimum:
            giver = _give(cluster, state, parts, taker, led, set(brokers), minimum)
            if giver < 0:
                break
            led[giver] -= 1
            led[taker] += 1


def _give(
    cluster: Cluster,
    state: State,
    parts: list[int],
    taker: int,
    led: Counter[int],
    brokers: set[int],
    minimum: int,
) -> int:
    """Make a broker leader of a partition whose leader can spare it; who that was, -1 for none."""
    f = cluster.problem

    def spare(p: int) -> int:
        giver = int(state.broker[state.leader[p]])
        return led[giver] - minimum if giver in brokers else f.start[-1]

    givers = sorted((p for p in parts if spare(p) > 0), key=lambda p: (-spare(p), p))
    for p in givers:
        for slot in range(f.start[p], f.start[p + 1]):
            if state.broker[slot] == taker:
                giver = int(state.broker[state.leader[p]])
                kernels.lead(f, state, p, slot)
                return giver
    for p in givers:
        giver = int(state.broker[state.leader[p]])
        slots = range(f.start[p], f.start[p + 1])
        # Racks may allow another replica to go there, and not the leader.
        for slot in sorted(slots, key=lambda slot: slot != state.leader[p]):
            after = f.disk_before[taker] + state.arriving[taker] + f.size[slot]
            if kernels.crowding(f, state, slot, taker) <= 0 and after <= f.disk_peak[taker]:
                kernels.move(f, state, slot, taker)
                if slot != state.leader[p]:
                    kernels.lead(f, state, p, slot)
                return giver
    return -1
