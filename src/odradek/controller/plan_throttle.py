"""The throttle of plans: set before a plan copies, and put back when nothing of any plan moves.

Rules
1. One owner: the controller sets these settings and puts them back. A client that dies leaves none
   behind, and the next controller finds in the store what they were.
2. What a setting was is written down before it is changed. A setting is changed, and put back,
   under the version it was read at: one that another writer changes meanwhile is left, and said.
3. Plans share one throttle, at the rate that was asked for last. What was there before the first
   comes back after the last.

The settings are Kafka's: throttled replicas of topics, and the rates of brokers. A broker that is
away finds its own when it is back. docs/spec/planner.md section 5.
"""

import asyncio
from collections.abc import Collection, Mapping, Sized
from functools import partial

from odradek.controller.journal import EntryKind
from odradek.controller.term import Term
from odradek.store.paths import ConfigKind
from odradek.store.plan_throttles import ConfigOwner, Held, HeldByOwner
from odradek.wire.topics import TopicPartition

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
RATES = (LEADER_RATE, FOLLOWER_RATE)
ALL_REPLICAS = "*"
# A longer list becomes all replicas of the topic: a node of the store has its limit, too.
LIST_LENGTH_MAX = 100_000
# Brokers learn of a setting a moment after it is written.
IN_FORCE_S = 1.0
# So many owners get their settings back in one event: other events wait meanwhile.
RELEASED_AT_ONCE = 500

Wanted = dict[ConfigOwner, dict[str, str]]


class PlanThrottle:
    """Holds the settings of a throttle as long as plans move."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._context = term.context
        self._store = term.store.plan_throttles
        self._configs = term.store.configs
        self._held: HeldByOwner = {}
        self._in_force_at = 0.0

    def __len__(self) -> int:
        return len(self._held)

    async def load(self, queued: Mapping[int, Mapping[TopicPartition, Collection[int]]]) -> None:
        """Learn what an earlier controller held, and set what it did not come to."""
        self._held = await self._store.read()
        for rate, targets in queued.items():
            await self.hold(rate, targets)

    def seconds_left(self, now: float) -> float:
        """Until every broker has heard of the last setting: copies begin then."""
        return max(0.0, self._in_force_at - now)

    async def hold(self, rate: int, targets: Mapping[TopicPartition, Collection[int]]) -> None:
        """Throttle the copies to these replicas."""
        wanted = {**self._replicas(targets), **self._rates(rate, targets)}
        own = await self._values(wanted)
        held = {
            owner: self._held.get(owner, {})
            | {
                name: self._hold(owner, name, own[owner].get(name), value)
                for name, value in settings.items()
            }
            for owner, settings in wanted.items()
        }
        changed = {owner: of for owner, of in held.items() if of != self._held.get(owner)}
        # An earlier controller may have died between writing down and setting.
        due = [owner for owner in held if owner in changed or _is_unset(held[owner], own[owner])]
        if not due:
            return
        await self._store.write(changed, self._held.keys() & changed.keys(), self._term.fence)
        self._held.update(changed)
        await self._configs.prepare_brokers([of.entity for of in due if _is_broker(of)])
        for kind in (ConfigKind.TOPICS, ConfigKind.BROKERS):
            await self._configs.update(
                kind,
                [owner.entity for owner in due if owner.kind is kind],
                partial(self._set, kind),
                self._term.fence,
            )
        self._in_force_at = _now() + IN_FORCE_S
        self._record(f"{rate} bytes a second, for {len(targets)} partitions")

    def _hold(self, owner: ConfigOwner, name: str, now: str | None, value: str) -> Held:
        """What is held already keeps what it was at first."""
        known = self._held.get(owner, {}).get(name)
        before = now if known is None else known.before
        if name not in RATES:
            value = _joined(now, value)
        return Held(before, value)

    def _set(self, kind: ConfigKind, entity: str, settings: dict[str, str]) -> dict[str, str]:
        held = self._held[ConfigOwner(kind, entity)]
        return settings | {name: of.value for name, of in held.items()}

    async def release(self, queue: Sized) -> bool:
        """Put settings back if nothing that they are for is left; whether more are to follow."""
        if not self._held or len(queue) or self._is_copying():
            return False
        some = dict(list(self._held.items())[:RELEASED_AT_ONCE])
        for kind in (ConfigKind.TOPICS, ConfigKind.BROKERS):
            await self._configs.update(
                kind,
                [owner.entity for owner in some if owner.kind is kind],
                partial(self._put_back, kind),
                self._term.fence,
            )
        await self._store.delete(some, self._term.fence)
        for owner in some:
            del self._held[owner]
        if not self._held:
            self._record("removed")
        return bool(self._held)

    def _put_back(self, kind: ConfigKind, entity: str, settings: dict[str, str]) -> dict[str, str]:
        for name, of in self._held[ConfigOwner(kind, entity)].items():
            now = settings.get(name)
            if now == of.value and of.before is None:
                del settings[name]
            elif now == of.value and of.before is not None:
                settings[name] = of.before
            elif now != of.before:
                self._record(f"{name} of {kind}/{entity} was changed, left as it is")
        return settings

    def _is_copying(self) -> bool:
        """Whether a partition still moves that is throttled: a stopped plan's last step, say."""
        return any(
            ConfigOwner(ConfigKind.TOPICS, tp.topic) in self._held
            for tp in self._context.reassigning
        )

    # What to set

    def _replicas(self, targets: Mapping[TopicPartition, Collection[int]]) -> Wanted:
        leaders: dict[str, list[str]] = {}
        followers: dict[str, list[str]] = {}
        for tp, target in targets.items():
            assignment = self._context.assignment(tp)
            sources = assignment.origin
            new = [id for id in (*target, *assignment.adding) if id not in sources]
            if new:
                leaders.setdefault(tp.topic, []).extend(f"{tp.partition}:{id}" for id in sources)
                followers.setdefault(tp.topic, []).extend(f"{tp.partition}:{id}" for id in new)
        return {
            ConfigOwner(ConfigKind.TOPICS, topic): {
                LEADER_REPLICAS: ",".join(parts),
                FOLLOWER_REPLICAS: ",".join(followers[topic]),
            }
            for topic, parts in leaders.items()
        }

    def _rates(self, rate: int, targets: Mapping[TopicPartition, Collection[int]]) -> Wanted:
        brokers: set[int] = set()
        for tp, target in targets.items():
            brokers.update(target, self._context.assignment(tp).replicas)
        if not brokers or not self._copies(targets):
            return {}
        return {
            ConfigOwner(ConfigKind.BROKERS, str(id)): dict.fromkeys(RATES, str(rate))
            for id in sorted(brokers)
        }

    def _copies(self, targets: Mapping[TopicPartition, Collection[int]]) -> bool:
        return any(set(to) - set(self._context.assignment(tp).origin) for tp, to in targets.items())

    async def _values(self, wanted: Wanted) -> dict[ConfigOwner, dict[str, str]]:
        found: dict[ConfigOwner, dict[str, str]] = {}
        for kind in (ConfigKind.TOPICS, ConfigKind.BROKERS):
            entities = [owner.entity for owner in wanted if owner.kind is kind]
            for entity, settings in (await self._configs.get_many(kind, entities)).items():
                found[ConfigOwner(kind, entity)] = settings
        return found

    def _record(self, what: str) -> None:
        self._term.journal.record(EntryKind.REASSIGNMENT, after=f"throttle of plans: {what}")


def _is_broker(owner: ConfigOwner) -> bool:
    return owner.kind is ConfigKind.BROKERS


def _is_unset(held: Mapping[str, Held], own: Mapping[str, str]) -> bool:
    """Whether a setting is what it was before it was held."""
    return any(own.get(name) == of.before != of.value for name, of in held.items())


def _joined(was: str | None, value: str) -> str:
    """Throttled replicas of others stay throttled."""
    parts = {part for text in (was, value) if text for part in text.split(",")} - {"none"}
    joined = ",".join(sorted(parts))
    return ALL_REPLICAS if ALL_REPLICAS in parts or len(joined) > LIST_LENGTH_MAX else joined


def _now() -> float:
    return asyncio.get_running_loop().time()
