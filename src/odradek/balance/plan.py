"""A plan as a value: which partitions move where, why, what that costs and what it reaches.

A partition has one move in a plan, from all of its replicas as they are to all as they shall be,
the preferred leader first. `to_json` and `from_json` are exact inverses, so that a plan may be kept
in a file or a topic and carried out later. What comes from there is checked field by field.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from odradek.placement import format_reassignment
from odradek.wire.topics import TopicPartition

T = TypeVar("T")

COPY = "copy"
LEADERSHIP = "leadership"
MET = "met"
IMPROVED = "improved"
UNATTAINABLE = "unattainable"
NOT_FOUND = "not found"


class InvalidPlan(ValueError):
    """A text that is no plan; the message says where."""


@dataclass(frozen=True, slots=True)
class Move:
    """What becomes of one partition.

    `rule` names the rule it serves, `gain` says what it does for it. `because_of` is the position,
    in the plan, of the move without which this one would not be needed or possible.
    """

    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    kind: str
    rule: str
    gain: str
    bytes: int
    seconds: float
    because_of: int | None = None

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class RuleResult:
    """How far a plan gets with one rule: how many brokers break it before and after, and for one
    that cannot be met the reason."""

    rule: str
    state: str
    outside_before: int
    outside_after: int
    proof: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """One resource of one broker: what it bears before and after, its share, and its band."""

    before: int
    after: int
    share: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class BrokerResult:
    """What a plan does to one broker, by resource; for those that stay outside their band, why."""

    broker: int
    rack: str | None
    state: str
    resources: Mapping[str, Span]
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlanCost:
    """What carrying out a plan takes; `rate` is the bytes per second that the time is counted by,
    `busiest` the broker that sends most."""

    bytes: int
    copies: int
    leaderships: int
    seconds: float
    rate: int
    busiest: int | None
    busiest_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Moves in the order to carry them out, and what they reach."""

    id: str
    created_ms: int
    load_as_of_ms: int
    moves: tuple[Move, ...]
    rules: tuple[RuleResult, ...]
    brokers: tuple[BrokerResult, ...]
    cost: PlanCost
    bound: int
    coverage: float
    evaluations: int

    @property
    def is_attainable(self) -> bool:
        """Whether every hard rule holds afterwards."""
        return not any(
            result.rule in HARD_RULES and result.state != MET and result.outside_after
            for result in self.rules
        )

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), separators=(",", ":"), ensure_ascii=False)

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "created_ms": self.created_ms,
            "load_as_of_ms": self.load_as_of_ms,
            "rules": [_fields(result) for result in self.rules],
            "brokers": [
                {
                    "broker": broker.broker,
                    "rack": broker.rack,
                    "state": broker.state,
                    "resources": {name: _fields(span) for name, span in broker.resources.items()},
                    "reasons": dict(broker.reasons),
                }
                for broker in self.brokers
            ],
            "moves": [move_to_dict(move) for move in self.moves],
            "cost": _fields(self.cost),
            "bound": self.bound,
            "coverage": self.coverage,
            "evaluations": self.evaluations,
        }

    def to_file(self) -> str:
        """The plan as JSON that Kafka's tools take as a reassignment, too: they look only at
        `version` and `partitions`."""
        kafka = json.loads(format_reassignment({move.tp: move.after for move in self.moves}))
        return json.dumps({**kafka, **self.to_dict()}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> "Plan":
        """The plan that `to_json` or `to_file` wrote; InvalidPlan for anything else."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidPlan(f"a plan is JSON: {error}") from None
        plan = _Reader(found, "plan")
        return cls(
            id=plan.text("id"),
            created_ms=plan.whole("created_ms"),
            load_as_of_ms=plan.whole("load_as_of_ms"),
            moves=plan.each("moves", _read_move),
            rules=plan.each("rules", _read_rule),
            brokers=plan.each("brokers", _read_broker),
            cost=_read_cost(plan.inner("cost")),
            bound=plan.whole("bound"),
            coverage=plan.number("coverage"),
            evaluations=plan.whole("evaluations"),
        )


# Rules that a plan must keep. The others are kept as well as can be.
HARD_RULES = (
    "allowed brokers",
    "racks",
    "minimum of leaders",
    "cpu capacity",
    "in capacity",
    "out capacity",
    "disk capacity",
    "replica capacity",
)


def move_to_dict(move: Move) -> dict[str, Any]:
    """One move as a JSON object, `from` and `to` for its replicas."""
    return {
        "topic": move.topic,
        "partition": move.partition,
        "from": list(move.before),
        "to": list(move.after),
        "kind": move.kind,
        "rule": move.rule,
        "gain": move.gain,
        "bytes": move.bytes,
        "seconds": move.seconds,
        "because_of": move.because_of,
    }


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


class _Reader:
    """A JSON object whose fields are asked for by kind; what is not there or not so is an error."""

    def __init__(self, found: object, where: str) -> None:
        if not isinstance(found, dict):
            raise InvalidPlan(f"{where} is an object, not {_shown(found)}")
        self.found = found
        self.where = where

    def _get(self, name: str) -> object:
        if name not in self.found:
            raise InvalidPlan(f"{self.where} has no {name}")
        return self.found[name]

    def _refuse(self, name: str, kind: str) -> InvalidPlan:
        return InvalidPlan(f"{self.where}: {name} is {kind}, not {_shown(self.found[name])}")

    def text(self, name: str) -> str:
        found = self._get(name)
        if not isinstance(found, str):
            raise self._refuse(name, "a text")
        return found

    def text_or_none(self, name: str) -> str | None:
        return None if self._get(name) is None else self.text(name)

    def whole(self, name: str) -> int:
        found = self._get(name)
        if not isinstance(found, int) or isinstance(found, bool):
            raise self._refuse(name, "a whole number")
        return found

    def whole_or_none(self, name: str) -> int | None:
        return None if self._get(name) is None else self.whole(name)

    def number(self, name: str) -> float:
        found = self._get(name)
        if not isinstance(found, int | float) or isinstance(found, bool):
            raise self._refuse(name, "a number")
        return float(found)

    def replicas(self, name: str) -> tuple[int, ...]:
        found = self._get(name)
        if (
            not isinstance(found, list)
            or not found
            or not all(type(each) is int and each >= 0 for each in found)
            or len(set(found)) < len(found)
        ):
            raise self._refuse(name, "a list of different brokers")
        return tuple(found)

    def inner(self, name: str) -> "_Reader":
        return _Reader(self._get(name), f"{self.where}: {name}")

    def each(self, name: str, read: Callable[["_Reader"], T]) -> tuple[T, ...]:
        found = self._get(name)
        if not isinstance(found, list):
            raise self._refuse(name, "a list")
        return tuple(
            read(_Reader(each, f"{self.where}: {name}[{place}]"))
            for place, each in enumerate(found)
        )


def _shown(found: object, limit: int = 60) -> str:
    text = json.dumps(found, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[:limit]}…"


def _read_move(move: _Reader) -> Move:
    kind = move.text("kind")
    if kind not in (COPY, LEADERSHIP):
        raise InvalidPlan(f"{move.where}: a kind is {COPY} or {LEADERSHIP}, not {_shown(kind)}")
    return Move(
        topic=move.text("topic"),
        partition=move.whole("partition"),
        before=move.replicas("from"),
        after=move.replicas("to"),
        kind=kind,
        rule=move.text("rule"),
        gain=move.text("gain"),
        bytes=move.whole("bytes"),
        seconds=move.number("seconds"),
        because_of=move.whole_or_none("because_of"),
    )


def _read_rule(rule: _Reader) -> RuleResult:
    return RuleResult(
        rule=rule.text("rule"),
        state=rule.text("state"),
        outside_before=rule.whole("outside_before"),
        outside_after=rule.whole("outside_after"),
        proof=rule.text("proof"),
    )


def _read_broker(broker: _Reader) -> BrokerResult:
    resources = broker.inner("resources")
    return BrokerResult(
        broker=broker.whole("broker"),
        rack=broker.text_or_none("rack"),
        state=broker.text("state"),
        resources={name: _read_span(resources.inner(name)) for name in resources.found},
        reasons=_read_reasons(broker),
    )


def _read_reasons(broker: _Reader) -> dict[str, str]:
    """A plan that was kept by an earlier version has none."""
    if "reasons" not in broker.found:
        return {}
    reasons = broker.inner("reasons")
    return {name: reasons.text(name) for name in reasons.found}


def _read_span(span: _Reader) -> Span:
    return Span(*(span.whole(name) for name in ("before", "after", "share", "low", "high")))


def _read_cost(cost: _Reader) -> PlanCost:
    return PlanCost(
        bytes=cost.whole("bytes"),
        copies=cost.whole("copies"),
        leaderships=cost.whole("leaderships"),
        seconds=cost.number("seconds"),
        rate=cost.whole("rate"),
        busiest=cost.whole_or_none("busiest"),
        busiest_bytes=cost.whole("busiest_bytes"),
    )


def next_plan_id(day: str, taken: Sequence[str]) -> str:
    """The first free id of a day: 20261117-1, 20261117-2, ..."""
    numbers = [
        int(number)
        for each in taken
        for date, dash, number in [each.partition("-")]
        if date == day and dash and number.isdecimal()
    ]
    return f"{day}-{max(numbers, default=0) + 1}"
