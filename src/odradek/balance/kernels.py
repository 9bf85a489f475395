"""The compiled loops of the planner: a placement as flat arrays of integers, and steps on it.

A **slot** is one replica of a partition; slots of a partition stand together, partitions of a topic
too. A step moves a slot to another broker, swaps two, or gives a partition's leadership to another
of its slots. What a step changes is the sums of two brokers in eight dimensions, and the number of
replicas that a topic has on them; its worth is how much less the brokers are pulled (`rules`).
Sums are integers, so they are exact in whatever order steps are made.

Nothing here allocates while it searches, and chance is one generator with a fixed seed, so the same
input gives the same steps. Without the compiler (NUMBA_DISABLE_JIT=1) the same code runs as Python.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from odradek.balance.rules import CPU, DISK, IN, LEADER_IN, LEADERS, OUT, POTENTIAL_OUT, REPLICAS

Array = np.ndarray[Any, Any]
Number = Any  # an int or float to Python, a machine word to the compiler

DIMENSION_COUNT = 8
WALL_COUNT = 5
# Columns of `rates`.
RATE_IN, RATE_OUT_LEADER, RATE_OUT_FOLLOWER, RATE_CPU_LEADER, RATE_CPU_FOLLOWER = range(5)
# The row of the scratch vector that stays zero.
NOTHING = 2
# Counters of a state.
EVALUATIONS, SEED = range(2)

IMPOSSIBLE = 1e300
# A step must lower the pull by this: a distance of 0.03 % of a share, and far above rounding.
WORTHWHILE = 1e-7
# A copy costs its bytes and some mean sizes; giving leadership away, or moving what moves anyway,
# next to nothing. In units of the mean size.
FREE_PRICE = 0.02

TARGETS = 8
DRAWS = 4
REPAIR_TARGETS = 256
SWAPPED = 6
SWAPPED_FOR = 32
WINDOW_FACTOR = 32
STEPS_PER_VISIT = 50_000
# After so many visits in which nothing relieved it, a broker's dimension is left as it is: its
# largest replica may alone be more than a share.
FAILURES_MAX = 2
# Columns of `weight`, and how much the rounding of a weight may hide.
WEIGHT_CPU, WEIGHT_IN, WEIGHT_OUT, WEIGHT_DISK, WEIGHT_ONE = range(5)
ROUNDING = 1.00001
# Classes of ratios are so many bits of their numbers; 1/4096 wide, and from the least on.
RATIO_SHIFT = 40
RATIO_MIN = 1 / 256
RATIO_CLASSES = 16 * 4096
# Room for the candidates of a step: the largest width of the search.
WIDTH_MAX = 512


def compiled(function: Callable[..., Any]) -> Any:
    """The function in machine code, made when it is first called, or loaded if it was before."""
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:  # there is nowhere to keep it
        return njit(nogil=True)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """A function that is a part of each that calls it: a call would pass every array of both
    tuples, which takes longer than the work."""
    return njit(inline="always")(function)


class Problem(NamedTuple):
    """What does not change: replicas, loads, brokers and their limits."""

    start: Array  # of each partition its first slot, and the end
    partition: Array  # of each slot
    topic: Array  # of each partition
    size: Array  # of each slot, in bytes
    rates: Array  # of each partition, five columns
    home: Array  # of each slot the broker it is on before
    first: Array  # of each partition the slot that leads before
    must_leave: Array  # of each slot whether it may not stay on its broker
    frozen: Array  # of each topic whether its replicas stay where they may
    pinned: Array  # of each slot whether it stays, and leads if it does (`burden`)
    group: Array  # of each topic its row in `allowed`
    allowed: Array  # by group and broker, whether replicas may come there
    rack: Array  # of each broker
    receivers: Array  # the brokers that may receive anything
    low: Array
    high: Array
    wall: Array
    scale: Array  # what a squared distance from the band weighs
    wall_scale: Array
    inverse_share: Array
    disk_before: Array
    disk_peak: Array  # the most that a broker may hold while replicas arrive and none has left
    topic_low: Array
    topic_high: Array
    topic_scale: Array
    crowd_stride: int  # the number of brokers, or 0 where topics are not spread
    mean_size: float
    copy_price: float  # of each copy beside its bytes, in units of the mean size


class State(NamedTuple):
    """A placement, and what is counted about it."""

    broker: Array  # of each slot
    leader: Array  # of each partition its leading slot
    sums: Array  # by broker and dimension
    arriving: Array  # bytes on each broker that were not there before
    entries: Array  # the slots of each broker, from begin[b], held[b] of room[b]
    begin: Array
    held: Array
    room: Array
    place: Array  # of each slot where it stands among those of its broker
    crowd: Array  # by topic and broker, the number of replicas
    weight: Array  # of each slot, what it brings at most for its price: five columns
    failures: Array  # by broker and dimension, how often a visit found nothing
    cursor: Array  # of each broker where its rotating window begins
    vector: Array  # scratch: what a slot adds
    chosen: Array  # scratch: candidates
    worth: Array  # scratch: their ranks
    targets: Array  # scratch: brokers
    counters: Array


# What a slot adds, and what that does.


@inlined
def add_load(f: Number, s: Number, slot: Number, leads: Number, row: Number) -> None:
    """Write what a slot adds to its broker into a row of the scratch vector."""
    p = f.partition[slot]
    rates, v = f.rates, s.vector
    v[row, IN] = rates[p, RATE_IN]
    v[row, DISK] = f.size[slot]
    v[row, REPLICAS] = 1
    v[row, POTENTIAL_OUT] = rates[p, RATE_OUT_LEADER]
    if leads:
        v[row, CPU] = rates[p, RATE_CPU_LEADER]
        v[row, OUT] = rates[p, RATE_OUT_LEADER]
        v[row, LEADERS] = 1
        v[row, LEADER_IN] = rates[p, RATE_IN]
    else:
        v[row, CPU] = rates[p, RATE_CPU_FOLLOWER]
        v[row, OUT] = rates[p, RATE_OUT_FOLLOWER]
        v[row, LEADERS] = 0
        v[row, LEADER_IN] = 0


@inlined
def add_leadership(f: Number, s: Number, p: Number, row: Number) -> None:
    """Write what leading a partition adds to following it."""
    rates, v = f.rates, s.vector
    v[row, CPU] = rates[p, RATE_CPU_LEADER] - rates[p, RATE_CPU_FOLLOWER]
    v[row, IN] = 0
    v[row, OUT] = rates[p, RATE_OUT_LEADER] - rates[p, RATE_OUT_FOLLOWER]
    v[row, DISK] = 0
    v[row, REPLICAS] = 0
    v[row, LEADERS] = 1
    v[row, LEADER_IN] = rates[p, RATE_IN]
    v[row, POTENTIAL_OUT] = 0


@inlined
def load_in(f: Number, s: Number, slot: Number, d: Number) -> Number:
    """What a slot adds in one dimension."""
    p = f.partition[slot]
    leads = s.leader[p] == slot
    if d == CPU:
        return f.rates[p, RATE_CPU_LEADER] if leads else f.rates[p, RATE_CPU_FOLLOWER]
    if d == IN:
        return f.rates[p, RATE_IN]
    if d == OUT:
        return f.rates[p, RATE_OUT_LEADER] if leads else f.rates[p, RATE_OUT_FOLLOWER]
    if d == DISK:
        return f.size[slot]
    if d == POTENTIAL_OUT:
        return f.rates[p, RATE_OUT_LEADER]
    if d == LEADER_IN:
        return f.rates[p, RATE_IN] if leads else 0
    if d == LEADERS:
        return 1 if leads else 0
    return 1


@compiled
def pull_at(
    x: Number, low: Number, high: Number, wall: Number, scale: Number, wall_scale: Number
) -> Number:
    """How hard a broker is pulled that bears x where its band and wall are these.

    Numbers and no arrays: the compiler counts references to an array that is used in a branch.
    """
    far = float(max(x - high, low - x, 0))
    beyond = float(max(x - wall, 0))
    return far * far * scale + beyond * beyond * wall_scale


@inlined
def pull(f: Number, b: Number, d: Number, x: Number) -> Number:
    """How hard a broker is pulled that bears x in a dimension."""
    return pull_at(x, f.low[b, d], f.high[b, d], f.wall[b, d], f.scale[b, d], f.wall_scale[b, d])


@inlined
def change_of(f: Number, s: Number, b: Number, row: Number, sign: Number) -> Number:
    """How the pull on a broker changes when it gets (+1) or gives (-1) a row of the vector."""
    result = 0.0
    for d in range(DIMENSION_COUNT):
        x = s.sums[b, d]
        result += pull(f, b, d, x + sign * s.vector[row, d]) - pull(f, b, d, x)
    return result


@compiled
def topic_pull(count: Number, low: Number, high: Number, scale: Number) -> Number:
    """How hard a broker is pulled that has so many replicas of a topic."""
    far = float(max(count - high, low - count, 0))
    return far * far * scale


@compiled
def topic_difference(
    here: Number, there: Number, low: Number, high: Number, scale: Number, misses: Number
) -> Number:
    """How the pull changes if one broker gives a replica of a topic to another; one that all of it
    leaves misses none."""
    result = topic_pull(there + 1, low, high, scale) - topic_pull(there, low, high, scale)
    if misses:
        result += topic_pull(here - 1, low, high, scale) - topic_pull(here, low, high, scale)
    return result


@inlined
def topic_change(f: Number, s: Number, t: Number, giver: Number, taker: Number) -> Number:
    row = int(t) * f.crowd_stride
    return topic_difference(
        int(s.crowd[row + giver]),
        int(s.crowd[row + taker]),
        int(f.topic_low[t]),
        int(f.topic_high[t]),
        f.topic_scale[t],
        f.inverse_share[giver, REPLICAS] > 0.0,
    )


# What is allowed.


@inlined
def may_go(f: Number, s: Number, slot: Number, taker: Number) -> Number:
    """Whether a slot may go to a broker: one that takes its topic, has no replica of it, and is in
    a rack that then has no more of them than the rack it leaves has now."""
    p = f.partition[slot]
    if not f.allowed[f.group[f.topic[p]], taker]:
        return False
    giver = s.broker[slot]
    left, entered = f.rack[giver], f.rack[taker]
    in_left, in_entered = 0, 0
    for other in range(f.start[p], f.start[p + 1]):
        b = s.broker[other]
        if b == taker:
            return False
        if f.rack[b] == left:
            in_left += 1
        if f.rack[b] == entered:
            in_entered += 1
    return left == entered or in_entered + 1 <= in_left


@inlined
def has_room(f: Number, s: Number, b: Number, row: Number, other: Number) -> Number:
    """Whether a broker stays within its walls with one row of the vector more, another less."""
    fits = True
    for d in range(WALL_COUNT):
        v = s.vector[row, d] - s.vector[other, d]
        fits &= (v <= 0) | (s.sums[b, d] + v <= f.wall[b, d])
    return fits


@inlined
def can_arrive(f: Number, s: Number, slot: Number, b: Number) -> Number:
    """Whether a disk holds a slot beside all that is, and all that arrives, before anything
    leaves."""
    after = f.disk_before[b] + s.arriving[b] + f.size[slot]
    return (f.home[slot] == b) | (after <= f.disk_peak[b])


@inlined
def price(f: Number, s: Number, slot: Number, taker: Number) -> Number:
    """What moving a slot costs: nothing more if it goes home or had moved before."""
    if s.broker[slot] != f.home[slot] or f.home[slot] == taker:
        return FREE_PRICE
    return f.size[slot] / f.mean_size + f.copy_price


@inlined
def weigh(f: Number, s: Number, slot: Number) -> None:
    """Write what a slot that leads brings for its price, in one row: choosing among the slots of a
    broker looks at each, and all else about a slot is far away in memory."""
    p = f.partition[slot]
    w = 1.0 / price(f, s, slot, -1)
    s.weight[slot, WEIGHT_CPU] = f.rates[p, RATE_CPU_LEADER] * w
    s.weight[slot, WEIGHT_IN] = f.rates[p, RATE_IN] * w
    s.weight[slot, WEIGHT_OUT] = f.rates[p, RATE_OUT_LEADER] * w
    s.weight[slot, WEIGHT_DISK] = f.size[slot] * w
    s.weight[slot, WEIGHT_ONE] = w


@inlined
def weight_of(d: Number) -> Number:
    """The column of `weight` that bounds a dimension."""
    if d == CPU:
        return WEIGHT_CPU
    if d in (IN, LEADER_IN):
        return WEIGHT_IN
    if d in (OUT, POTENTIAL_OUT):
        return WEIGHT_OUT
    if d == DISK:
        return WEIGHT_DISK
    return WEIGHT_ONE


# Steps.


@compiled
def lay_out(f: Number, s: Number) -> None:
    """Write the list of each broker's slots again, each with room to grow by a quarter."""
    s.held[:] = 0
    for slot in range(len(s.broker)):
        s.held[s.broker[slot]] += 1
    at = 0
    for b in range(len(s.held)):
        s.begin[b] = at
        s.room[b] = s.held[b] + s.held[b] // 4 + 16
        at += s.room[b]
        s.held[b] = 0
    for slot in range(len(s.broker)):
        b = s.broker[slot]
        s.entries[s.begin[b] + s.held[b]] = slot
        s.place[slot] = s.held[b]
        s.held[b] += 1


@compiled
def count_up(f: Number, s: Number) -> None:
    """Add up all sums of a placement from nothing."""
    s.sums[:] = 0
    s.arriving[:] = 0
    s.crowd[:] = 0
    for slot in range(len(s.broker)):
        b = s.broker[slot]
        p = f.partition[slot]
        add_load(f, s, slot, s.leader[p] == slot, 0)
        for d in range(DIMENSION_COUNT):
            s.sums[b, d] += s.vector[0, d]
        s.crowd[int(f.topic[p]) * f.crowd_stride + b] += 1
        if f.home[slot] != b:
            s.arriving[b] += f.size[slot]
        weigh(f, s, slot)
    lay_out(f, s)


@compiled
def move(f: Number, s: Number, slot: Number, taker: Number) -> None:
    """Move a slot to a broker."""
    p = f.partition[slot]
    giver = s.broker[slot]
    add_load(f, s, slot, s.leader[p] == slot, 0)
    for d in range(DIMENSION_COUNT):
        s.sums[giver, d] -= s.vector[0, d]
        s.sums[taker, d] += s.vector[0, d]
    row = int(f.topic[p]) * f.crowd_stride
    s.crowd[row + giver] -= 1
    s.crowd[row + taker] += 1
    if f.home[slot] != giver:
        s.arriving[giver] -= f.size[slot]
    if f.home[slot] != taker:
        s.arriving[taker] += f.size[slot]
    begin = s.begin[giver]
    s.held[giver] -= 1
    last = s.entries[begin + s.held[giver]]
    s.entries[begin + s.place[slot]] = last
    s.place[last] = s.place[slot]
    s.broker[slot] = taker
    weigh(f, s, slot)
    if s.held[taker] == s.room[taker]:
        lay_out(f, s)
        return
    s.entries[s.begin[taker] + s.held[taker]] = slot
    s.place[slot] = s.held[taker]
    s.held[taker] += 1


@compiled
def lead(f: Number, s: Number, p: Number, slot: Number) -> None:
    """Give the leadership of a partition to one of its slots."""
    add_leadership(f, s, p, 0)
    giver, taker = s.broker[s.leader[p]], s.broker[slot]
    for d in range(DIMENSION_COUNT):
        s.sums[giver, d] -= s.vector[0, d]
        s.sums[taker, d] += s.vector[0, d]
    s.leader[p] = slot


# What steps are worth.


@inlined
def move_change(f: Number, s: Number, slot: Number, taker: Number) -> Number:
    """How all pulls change if a slot moves to a broker; IMPOSSIBLE if a wall is in the way."""
    s.counters[EVALUATIONS] += 1
    p = f.partition[slot]
    giver = s.broker[slot]
    add_load(f, s, slot, s.leader[p] == slot, 0)
    change = change_of(f, s, giver, 0, -1) + change_of(f, s, taker, 0, 1)
    change += topic_change(f, s, f.topic[p], giver, taker)
    if not (has_room(f, s, taker, 0, NOTHING) & can_arrive(f, s, slot, taker)):
        change = IMPOSSIBLE
    return change


@inlined
def lead_change(f: Number, s: Number, p: Number, slot: Number) -> Number:
    """How all pulls change if a slot becomes its partition's leader."""
    s.counters[EVALUATIONS] += 1
    giver, taker = s.broker[s.leader[p]], s.broker[slot]
    add_leadership(f, s, p, 0)
    change = change_of(f, s, giver, 0, -1) + change_of(f, s, taker, 0, 1)
    if not has_room(f, s, taker, 0, NOTHING) or not f.allowed[f.group[f.topic[p]], taker]:
        change = IMPOSSIBLE
    return change


@inlined
def swap_change(f: Number, s: Number, one: Number, other: Number) -> Number:
    """How all pulls change if two slots of different partitions change places."""
    s.counters[EVALUATIONS] += 1
    p, q = f.partition[one], f.partition[other]
    a, b = s.broker[one], s.broker[other]
    add_load(f, s, one, s.leader[p] == one, 0)
    add_load(f, s, other, s.leader[q] == other, 1)
    change = 0.0
    for d in range(DIMENSION_COUNT):
        v = s.vector[0, d] - s.vector[1, d]
        change += pull(f, a, d, s.sums[a, d] - v) - pull(f, a, d, s.sums[a, d])
        change += pull(f, b, d, s.sums[b, d] + v) - pull(f, b, d, s.sums[b, d])
    if f.topic[p] != f.topic[q]:
        change += topic_change(f, s, f.topic[p], a, b) + topic_change(f, s, f.topic[q], b, a)
    if not (has_room(f, s, b, 0, 1) & has_room(f, s, a, 1, 0)):
        change = IMPOSSIBLE
    if not (can_arrive(f, s, one, b) & can_arrive(f, s, other, a)):
        change = IMPOSSIBLE
    return change


# Candidates.


@inlined
def draw(s: Number, below: Number) -> Number:
    """A number below another, by xorshift."""
    x = int(s.counters[SEED])
    x ^= (x << 13) & 0xFFFFFFFF
    x ^= x >> 17
    x ^= (x << 5) & 0xFFFFFFFF
    s.counters[SEED] = x
    return x % below


@compiled
def choose_brokers(f: Number, s: Number, b: Number, d: Number, lowest: Number) -> Number:
    """Write brokers at the low or the high end of a dimension into `targets`; how many. All of a
    few; of many, each the best of four draws."""
    n = 0
    count = len(f.receivers)
    if count <= TARGETS * DRAWS:
        for i in range(count):
            if f.receivers[i] != b:
                s.targets[n] = f.receivers[i]
                n += 1
        return n
    for _ in range(TARGETS):
        best, best_ratio = -1, 0.0
        for _ in range(DRAWS):
            c = f.receivers[draw(s, count)]
            ratio = s.sums[c, d] * f.inverse_share[c, d]
            if not lowest:
                ratio = -ratio
            if c != b and (best < 0 or ratio < best_ratio):
                best, best_ratio = c, ratio
        known = best < 0
        for i in range(n):
            known = known or s.targets[i] == best
        if not known:
            s.targets[n] = best
            n += 1
    return n


@compiled
def choose_slots(
    f: Number, s: Number, b: Number, d: Number, need: Number, width: Number, row: Number
) -> Number:
    """Write candidates to leave a broker into a row of `chosen`; how many.

    One half brings most of what is needed for its price, out of a wide window that rotates with
    each call; the other half is what comes first in it, whatever it brings.
    """
    count = s.held[b]
    best = width - width // 2
    n, plain = 0, 0
    window = min(count, WINDOW_FACTOR * width)
    at = s.cursor[b] % max(count, 1)
    column = weight_of(d)
    for _ in range(window):
        slot = s.entries[s.begin[b] + at]
        at = at + 1 if at + 1 < count else 0
        if n == best and plain == width // 2:
            most = float(min(s.weight[slot, column], need * s.weight[slot, WEIGHT_ONE]))
            if most * ROUNDING <= s.worth[n - 1]:
                continue
        if f.frozen[f.topic[f.partition[slot]]] or f.pinned[slot]:
            continue
        v = load_in(f, s, slot, d)
        if v <= 0:
            continue
        if plain < width // 2:
            s.chosen[row, best + plain] = slot
            plain += 1
            continue
        rank = float(min(v, need)) / price(f, s, slot, -1)
        if n == best and rank <= s.worth[n - 1]:
            continue
        i = n if n < best else n - 1
        while i > 0 and s.worth[i - 1] < rank:
            s.worth[i] = s.worth[i - 1]
            s.chosen[row, i] = s.chosen[row, i - 1]
            i -= 1
        s.worth[i] = rank
        s.chosen[row, i] = slot
        n = min(n + 1, best)
    s.cursor[b] = at
    for i in range(plain):
        s.chosen[row, n + i] = s.chosen[row, best + i]
    return n + plain


@compiled
def choose_any(f: Number, s: Number, b: Number, width: Number, row: Number) -> Number:
    """Write the next slots of a broker that may leave it into a row of `chosen`; how many."""
    count = s.held[b]
    n = 0
    at = s.cursor[b] % max(count, 1)
    for _ in range(min(count, WINDOW_FACTOR * width)):
        if n == width:
            break
        slot = s.entries[s.begin[b] + at]
        at = at + 1 if at + 1 < count else 0
        stays = f.frozen[f.topic[f.partition[slot]]] or f.pinned[slot]
        s.chosen[row, n] = slot
        n += 0 if stays else 1
    s.cursor[b] = at
    return n


# One step for one broker.


@compiled
def step_by_leadership(
    f: Number, s: Number, b: Number, d: Number, over: Number, width: Number
) -> Number:
    """Give a leadership away, or take one, whichever relieves most; whether there was one."""
    count = s.held[b]
    if count == 0:
        return False
    best, best_slot = -WORTHWHILE, -1
    tried = 0
    at = s.cursor[b] % count
    for _ in range(count):
        slot = s.entries[s.begin[b] + at]
        at = at + 1 if at + 1 < count else 0
        p = f.partition[slot]
        if f.frozen[f.topic[p]] or (s.leader[p] == slot) != over or f.pinned[s.leader[p]]:
            continue
        tried += 1
        if tried > 2 * width:
            break
        for other in range(f.start[p], f.start[p + 1]):
            taker = other if over else slot
            if s.leader[p] != taker and (over or other == slot):
                change = lead_change(f, s, p, taker)
                if change < best:
                    best, best_slot = change, taker
    s.cursor[b] = at
    if best_slot < 0:
        return False
    lead(f, s, f.partition[best_slot], best_slot)
    return True


@compiled
def step_by_move(
    f: Number, s: Number, b: Number, d: Number, over: Number, need: Number, width: Number
) -> Number:
    """Move the replica off a broker, or to it, that relieves most for its price; whether there was
    one."""
    best, best_slot, best_taker = 0.0, -1, -1
    brokers = choose_brokers(f, s, b, d, over)
    slots = choose_slots(f, s, b, d, need, width, 0) if over else 0
    for i in range(brokers):
        other = s.targets[i]
        if not over:
            slots = choose_slots(f, s, other, d, need, max(width // 4, 4), 0)
        taker = other if over else b
        for j in range(slots):
            slot = s.chosen[0, j]
            if not may_go(f, s, slot, taker):
                continue
            change = move_change(f, s, slot, taker)
            if change > -WORTHWHILE:
                continue
            score = -change / price(f, s, slot, taker)
            if score > best:
                best, best_slot, best_taker = score, slot, taker
    if best_slot < 0:
        return False
    move(f, s, best_slot, best_taker)
    return True


@compiled
def step_by_swap(f: Number, s: Number, b: Number, d: Number, over: Number, need: Number) -> Number:
    """Swap a replica that is heavy in a dimension for any that is not, of a broker at the other
    end; whether there was a pair that relieves."""
    best, best_one, best_other = 0.0, -1, -1
    brokers = choose_brokers(f, s, b, d, over)
    for i in range(brokers):
        other = s.targets[i]
        giver = b if over else other
        taker = other if over else b
        heavy = choose_slots(f, s, giver, d, need, SWAPPED, 0)
        light = choose_any(f, s, taker, SWAPPED_FOR, 1)
        for j in range(heavy):
            one = s.chosen[0, j]
            if not may_go(f, s, one, taker):
                continue
            for k in range(light):
                two = s.chosen[1, k]
                if f.partition[one] == f.partition[two] or not may_go(f, s, two, giver):
                    continue
                change = swap_change(f, s, one, two)
                if change > -WORTHWHILE:
                    continue
                score = -change / (price(f, s, one, taker) + price(f, s, two, giver))
                if score > best:
                    best, best_one, best_other = score, one, two
    if best_one < 0:
        return False
    taker = s.broker[best_other]
    giver = s.broker[best_one]
    move(f, s, best_one, taker)
    move(f, s, best_other, giver)
    return True


@compiled
def worst_dimension(f: Number, s: Number, b: Number, given_up: Number) -> Number:
    """The dimension in which a broker is pulled hardest, of those not given up; -1 for none."""
    worst, hardest = -1, 0.0
    for d in range(DIMENSION_COUNT):
        if not (given_up >> d) & 1:
            hard = pull(f, b, d, s.sums[b, d])
            if hard > hardest:
                worst, hardest = d, hard
    return worst


@compiled
def visit(f: Number, s: Number, b: Number, width: Number) -> Number:
    """Relieve one broker as far as steps can; how many were made."""
    given_up = 0
    for d in range(DIMENSION_COUNT):
        given_up |= int(s.failures[b, d] >= FAILURES_MAX) << d
    for steps in range(STEPS_PER_VISIT):
        d = worst_dimension(f, s, b, given_up)
        if d < 0:
            return steps
        x = s.sums[b, d]
        top = min(f.high[b, d], f.wall[b, d])
        over = x > top
        need = x - top if over else f.low[b, d] - x
        led = d in (CPU, OUT, LEADERS, LEADER_IN)
        if led and step_by_leadership(f, s, b, d, over, width):
            continue
        if step_by_move(f, s, b, d, over, need, width):
            continue
        if not step_by_swap(f, s, b, d, over, need):
            given_up |= 1 << d
            s.failures[b, d] += 1
    return STEPS_PER_VISIT


@compiled
def visit_each(
    f: Number, s: Number, brokers: Number, at: Number, width: Number, limit: Number
) -> Number:
    """Visit brokers in turn, beginning at one, until so many evaluations are made; where it
    stopped."""
    while at < len(brokers) and s.counters[EVALUATIONS] < limit:
        visit(f, s, brokers[at], width)
        at += 1
    return at


# Repairs.


@compiled
def crowding(f: Number, s: Number, slot: Number, taker: Number) -> Number:
    """How many more replicas the rack of a broker would have than the slot's has now; large where
    the broker may not take it."""
    p = f.partition[slot]
    if not f.allowed[f.group[f.topic[p]], taker]:
        return 1000
    giver = s.broker[slot]
    balance = 0
    for other in range(f.start[p], f.start[p + 1]):
        b = s.broker[other]
        if b == taker:
            return 1000
        if other != slot:
            balance += int(f.rack[b] == f.rack[taker]) - int(f.rack[b] == f.rack[giver])
    return balance


@compiled
def best_home(f: Number, s: Number, slot: Number, crowding_max: Number) -> Number:
    """The broker for a slot that must leave its own: the fewest others in its rack, then the least
    pull. Walls pull, but only a disk that would be full is in the way; -1 for none."""
    best, best_crowding, best_change = -1, crowding_max + 1, IMPOSSIBLE
    p = f.partition[slot]
    giver = s.broker[slot]
    count = len(f.receivers)
    for i in range(min(count, REPAIR_TARGETS)):
        b = f.receivers[i if count <= REPAIR_TARGETS else draw(s, count)]
        crowd = crowding(f, s, slot, b)
        if crowd > best_crowding or crowd > crowding_max or not can_arrive(f, s, slot, b):
            continue
        s.counters[EVALUATIONS] += 1
        add_load(f, s, slot, s.leader[p] == slot, 0)
        change = change_of(f, s, giver, 0, -1) + change_of(f, s, b, 0, 1)
        change += topic_change(f, s, f.topic[p], giver, b)
        if crowd < best_crowding or change < best_change:
            best, best_crowding, best_change = b, crowd, change
    return best


@compiled
def repair_places(f: Number, s: Number, slots: Number) -> Number:
    """Move each slot that may not stay where it is; how many found no place."""
    stuck = 0
    for i in range(len(slots)):
        b = best_home(f, s, slots[i], 999)
        if b < 0:
            stuck += 1
        else:
            move(f, s, slots[i], b)
    return stuck


@compiled
def most_crowded(f: Number, s: Number, p: Number) -> Number:
    """The slot of a partition in its fullest rack, the last of several that does not lead."""
    best, best_count = -1, 1
    for slot in range(f.start[p], f.start[p + 1]):
        count = 0
        for other in range(f.start[p], f.start[p + 1]):
            count += int(f.rack[s.broker[other]] == f.rack[s.broker[slot]])
        later = count == best_count and best >= 0 and s.leader[p] != slot
        if count > best_count or later:
            best, best_count = slot, count
    return best


@compiled
def repair_racks(f: Number, s: Number) -> Number:
    """Move replicas out of racks that have two more of a partition than another could have; how
    many were moved."""
    moved = 0
    for p in range(len(f.start) - 1):
        if f.frozen[f.topic[p]]:
            continue
        for _ in range(f.start[p + 1] - f.start[p]):
            slot = most_crowded(f, s, p)
            if slot < 0:
                break
            b = best_home(f, s, slot, -1)
            if b < 0:
                break
            move(f, s, slot, b)
            moved += 1
    return moved


# The spread of topics, and taking back.


@compiled
def spread(f: Number, s: Number) -> Number:
    """Move replicas of topics that crowd on a broker, where that relieves; how many were moved."""
    moved = 0
    p = 0
    while p < len(f.start) - 1:
        t = f.topic[p]
        first = p
        while p < len(f.start) - 1 and f.topic[p] == t:
            p += 1
        if f.frozen[t] or f.topic_scale[t] == 0.0:
            continue
        for i in range(len(f.receivers)):
            b = f.receivers[i]
            if s.crowd[int(t) * f.crowd_stride + b] > f.topic_high[t]:
                moved += spread_topic(f, s, f.start[first], f.start[p], b)
    return moved


@compiled
def spread_topic(f: Number, s: Number, begin: Number, end: Number, b: Number) -> Number:
    """Move replicas among these slots off a broker while there are too many of their topic."""
    moved = 0
    t = f.topic[f.partition[begin]]
    row = int(t) * f.crowd_stride
    for slot in range(begin, end):
        if s.crowd[row + b] <= f.topic_high[t]:
            break
        if s.broker[slot] != b or f.pinned[slot]:
            continue
        best, best_taker = -WORTHWHILE, -1
        count = choose_brokers(f, s, b, REPLICAS, True)
        for i in range(count):
            if may_go(f, s, slot, s.targets[i]):
                change = move_change(f, s, slot, s.targets[i])
                if change < best:
                    best, best_taker = change, s.targets[i]
        if best_taker >= 0:
            move(f, s, slot, best_taker)
            moved += 1
    return moved


@compiled
def take_back(f: Number, s: Number, slots: Number, partitions: Number) -> Number:
    """Undo every move of a slot and every change of a leader without which the pull is no higher;
    how many were undone."""
    undone = 0
    for i in range(len(slots)):
        slot = slots[i]
        home = f.home[slot]
        if s.broker[slot] == home or f.must_leave[slot] or not may_go(f, s, slot, home):
            continue
        if move_change(f, s, slot, home) <= 0.0:
            move(f, s, slot, home)
            undone += 1
    for i in range(len(partitions)):
        p = partitions[i]
        if s.leader[p] != f.first[p] and lead_change(f, s, p, f.first[p]) <= 0.0:
            lead(f, s, p, f.first[p])
            undone += 1
    return undone


# What no placement can change.


@compiled
def add_by_ratio(
    taken: Number, brought: Number, unit: Number, enough: Number, sums: Number
) -> None:
    """Add up what replicas bring of one thing, in classes by how much of another they take for it.
    The first class has those that take nearly none: if they bring enough, no other matters."""
    lowest = np.float64(RATIO_MIN).view(np.int64) >> RATIO_SHIFT
    for i in range(len(taken)):
        if sums[0] >= enough:
            return
        ratio = np.float64(unit * taken[i] / max(brought[i], 1))
        at = (ratio.view(np.int64) >> RATIO_SHIFT) - lowest
        sums[min(max(at, 0), len(sums) - 1)] += brought[i]


@compiled
def heaviest(f: Number, s: Number, found: Number, most: Number) -> None:
    """Write the slot of each broker that adds most to it in each dimension that one replica may be
    too much in, and how much. Without branches, for the reason that `pull_at` gives."""
    for slot in range(len(s.broker)):
        b = s.broker[slot]
        p = f.partition[slot]
        led = int(s.leader[p] == slot)
        for d in (CPU, IN, OUT, DISK, LEADER_IN):
            column = (d == CPU) * (RATE_CPU_FOLLOWER - led)
            column += (d == OUT) * (RATE_OUT_FOLLOWER - led)
            v = f.rates[p, column] * (led | int(d != LEADER_IN))
            v = f.size[slot] if d == DISK else v
            found[b, d] = slot if v > most[b, d] else found[b, d]
            most[b, d] = max(v, most[b, d])


@compiled
def topic_outside(f: Number, s: Number) -> Number:
    """How many pairs of topic and broker are outside the topic's band."""
    found = 0
    for t in range(len(f.frozen)):
        if f.topic_scale[t] > 0.0:
            for i in range(len(f.receivers)):
                count = s.crowd[int(t) * f.crowd_stride + f.receivers[i]]
                found += int(count > f.topic_high[t] or count < f.topic_low[t])
    return found


@compiled
def topic_pulls(f: Number, s: Number) -> Number:
    """How hard all brokers are pulled by their numbers of replicas of each topic."""
    total = 0.0
    for t in range(len(f.frozen)):
        if f.topic_scale[t] > 0.0:
            for i in range(len(f.receivers)):
                total += topic_pull(
                    int(s.crowd[int(t) * f.crowd_stride + f.receivers[i]]),
                    int(f.topic_low[t]),
                    int(f.topic_high[t]),
                    f.topic_scale[t],
                )
    return total
