"""The demo's stream is skewed on purpose, and is levelled while it flows.

All clicks are led by the first broker, and the last one has none of them. Once that load is
measured, a plan is made of it as `odradek rebalance plan` makes one, and the controller carries it
out, paced and throttled. Nothing is planned while a broker is away: the plan would empty it.

How skewed the stream is before and after is not taken from the plan: it is counted, by the clicks
that the leaders on each broker were given in a while.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from subprocess import Popen
from typing import TYPE_CHECKING

from odradek.cli.rebalance import in_short
from odradek.client.blocking_client import Blocking
from odradek.client.reader import LATEST, offsets_at
from odradek.wire.errors import KafkaError
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.balance.plan import Plan

LOOK_S = 1.0
COUNTED_S = 2.0
THROTTLE = 10_000_000
FAILURES = (KafkaError, OSError, TimeoutError)

# How much of the stream each broker leads, from 0 to 1.
Shares = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Levelled:
    """A plan that was carried out, and how the stream was spread before and after it."""

    plan: "Plan"
    before: Shares
    after: Shares

    def line(self) -> str:
        copies, leaderships = self.plan.cost.copies, self.plan.cost.leaderships
        return (
            f"levelled by plan {self.plan.id} ({leaderships} leaderships, {copies} copies): "
            f"{described(self.after)}; before {_percent(self.before)} %"
        )


def described(shares: Shares) -> str:
    """Such as: brokers 1-4 lead 100, 0, 0, 0 % of the clicks."""
    return f"brokers {min(shares)}-{max(shares)} lead {_percent(shares)} % of the clicks"


def _percent(shares: Shares) -> str:
    return ", ".join(f"{100 * shares[broker]:.0f}" for broker in sorted(shares))


class Leveller:
    """Levels a topic of a cluster. `result` is there when that is done."""

    def __init__(
        self, bootstrap: str, topic: str, brokers: int, tell: Callable[[str, str], None]
    ) -> None:
        self.result: Levelled | None = None
        self._bootstrap = bootstrap
        self._topic = topic
        self._brokers = brokers
        self._tell = tell

    def run(self, over: threading.Event) -> None:
        """Until the stream is level, or `over`: a plan that runs then is left to the controller."""
        if not self._compile(over):
            return
        with Blocking(self._bootstrap, client_id="odradek-demo-leveller") as cluster:
            while not over.wait(LOOK_S):
                try:
                    before = self._count(cluster, over)
                    plan = self._plan(cluster)
                except FAILURES:
                    continue  # a broker has just died: it is back at the next look, or later
                if plan is not None and plan.moves:
                    self._carry_out(cluster, plan, before, over)
                    break
        if self.result is not None:
            self._tell(
                f"plan {self.result.plan.id} is done: {described(self.result.after)}", "green"
            )

    def _compile(self, over: threading.Event) -> bool:
        """Whether the planner is ready: on a machine that is new to it that takes a minute."""
        from odradek.balance.compilation import compile_apart, is_compiled

        if is_compiled():
            return True
        self._tell("compiling the planner, once on this machine; then the stream is levelled", "")
        compiler: Popen[bytes] = compile_apart()
        while compiler.poll() is None:
            if over.wait(LOOK_S):
                compiler.kill()
                compiler.wait()
                return False
        return True

    def _plan(self, cluster: Blocking) -> "Plan | None":
        """A plan by what was measured; None while that is not enough, or a broker is away."""
        from odradek.balance.current import current_load
        from odradek.balance.explain import Facts
        from odradek.balance.plan_store import PlanStore
        from odradek.balance.proposal import propose
        from odradek.balance.search import Budget
        from odradek.balance.settings import Settings

        now_ms = time.time_ns() // 1_000_000
        load = cluster.run(current_load(cluster.admin, now_ms))
        if load.brokers["state"].to_pylist().count("live") < self._brokers:
            return None
        rows = zip(*(load.replicas[name].to_pylist() for name in ("topic", "in")), strict=True)
        if not all(rate > 0 for topic, rate in rows if topic == self._topic):
            return None
        id = cluster.run(PlanStore(cluster.admin).read()).new_id(now_ms)
        facts = Facts(id, now_ms, load.as_of_ms or now_ms, load.coverage, THROTTLE)
        return propose(load, Settings(), Budget(), facts)

    def _carry_out(
        self, cluster: Blocking, plan: "Plan", before: Shares, over: threading.Event
    ) -> None:
        """Hand the plan over and wait for its end. Applied again, it goes on: so what fails because
        a broker has died is tried again."""
        from odradek.balance import execution
        from odradek.balance.plan_store import PlanStore

        store, is_applied = PlanStore(cluster.admin), False
        self._tell(described(before), "yellow")
        self._tell(f"plan {plan.id} by load: {in_short(plan)}", "")
        while not over.is_set():
            now_ms = time.time_ns() // 1_000_000
            try:
                if not is_applied:
                    apply = execution.apply(
                        cluster.admin, store, plan, throttle=THROTTLE, by="demo", now_ms=now_ms
                    )
                    is_applied = not cluster.run(apply).refused
                status = execution.status(cluster.admin, store, plan.id, now_ms=now_ms)
                standing = cluster.run(status)
                if is_applied and not standing.is_active and not standing.failed:
                    self.result = Levelled(plan, before, self._count(cluster, over))
                    return
            except FAILURES:
                pass
            over.wait(LOOK_S)

    def _count(self, cluster: Blocking, over: threading.Event) -> Shares:
        """Count the clicks that the leaders on each broker are given in a while."""
        client = cluster.client

        async def ends() -> dict[TopicPartition, int]:
            tps = (await client.require_topics([self._topic])).partitions_of([self._topic])
            found = await offsets_at(client, dict.fromkeys(tps, LATEST))
            return {tp: place.offset for tp, place in found.items()}

        earlier = cluster.run(ends())
        over.wait(COUNTED_S)
        now = cluster.run(ends())
        led: Counter[int] = Counter(dict.fromkeys(range(1, self._brokers + 1), 0))
        parts = client.metadata.topics[self._topic].partitions
        for tp, offset in now.items():
            led[parts[tp.partition].leader] += offset - earlier[tp]
        total = max(1, led.total())
        return {broker: count / total for broker, count in led.items() if broker >= 0}
