"""rebalance.toml: what is level, what is full, how large brokers are, which topics stay.

    [rules]
    disk.balance.threshold = 1.2       # Cruise Control's names for the same thresholds
    off = ["leaders", "topic spread"]
    racks = "strict"                   # refuse a partition with more replicas than racks

    [capacity.default]                 # of each broker; measured unless given
    cpu = 8
    network = "1GB"
    [capacity.4]
    disk = "4TB"

    [topics]
    excluded = ["audit-.*"]
    [topics.sets]
    "payments-.*" = [1, 2, 3]
    [topics.minimum-leaders]
    "canary" = 1                       # each broker leads at least so many

    [pace]                             # for `apply`, `rollback` and `watch`
    throttle = "100MB"                 # bytes a second of each broker
    per-broker = 2                     # odradek.moves.per.broker, and so on

    [heal]                             # for `watch`
    broker-after = "30min"
    replication-factor = 3             # topics with fewer replicas get more; off unless given
    balance = true                     # level what is uneven; reported unless given
    slow-remove = true                 # empty a broker that is slow; reported unless given

    [spark]                            # for `plan --spark`
    master = "spark://10.0.0.1:7077"
    cells = 16

Everything is optional. A name that is not known is refused with the nearest that is.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from odradek.balance.healing import LOOK_S, REPAIRS_PER_HOUR, UNEVEN, Trigger, Waits
from odradek.operations.suggestion import did_you_mean

# Positions in the tuples of `Thresholds`, in the order of its dimensions.
BALANCE = {
    "cpu.balance.threshold": 0,
    "network.inbound.balance.threshold": 1,
    "network.outbound.balance.threshold": 2,
    "disk.balance.threshold": 3,
    "replica.count.balance.threshold": 4,
    "leader.replica.count.balance.threshold": 5,
    "leader.bytes.in.balance.threshold": 6,
}
WALLS = {
    "cpu.capacity.threshold": 0,
    "network.inbound.capacity.threshold": 1,
    "network.outbound.capacity.threshold": 2,
    "disk.capacity.threshold": 3,
}
LOW = {
    "cpu.low.utilization.threshold": 0,
    "network.inbound.low.utilization.threshold": 1,
    "network.outbound.low.utilization.threshold": 2,
    "disk.low.utilization.threshold": 3,
}
NUMBERS = {
    "max.replicas.per.broker": "replicas_max",
    "topic.replica.count.balance.threshold": "topic_balance",
    "topic.replica.count.balance.min.gap": "topic_gap_min",
    "topic.replica.count.balance.max.gap": "topic_gap_max",
}
RULE_NAMES = (*BALANCE, *WALLS, *LOW, *NUMBERS, "off", "racks")
SECTIONS = ("rules", "capacity", "topics", "pace", "heal", "spark")
CAPACITIES = ("cpu", "network", "disk")
TOPICS = ("excluded", "sets", "minimum-leaders")
# The cluster's own settings that [pace] sets, and how large they may be.
PACES = {
    "cluster": ("odradek.moves.cluster", 100_000),
    "per-broker": ("odradek.moves.per.broker", 1_000),
    "per-broker-max": ("odradek.moves.per.broker.max", 1_000),
    "bytes-per-broker": ("odradek.moves.bytes.per.broker", 2**60),
    "leaderships": ("odradek.moves.leaderships", 100_000),
}
THROTTLE = 50_000_000
# The times of [heal], and their fields of `Waits`.
WAITS = {
    "broker-after": "broker_s",
    "directory-after": "directory_s",
    "disk-after": "disk_s",
    "empty-after": "empty_s",
    "replication-after": "replication_s",
    "controller-after": "controller_s",
}
# What is done only if asked for, and the fields of `Heal`.
SWITCHES = {"balance": "balances", "slow-remove": "removes_slow"}
HEAL = (*WAITS, *SWITCHES, "balance-interval", "interval", "rate", "replication-factor")
SPARK = ("master", "cells")
CELLS = 8
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)?")
_SPAN_SECONDS = {None: 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?(?:/s)?", re.IGNORECASE)


class InvalidSettings(ValueError):
    """A file that cannot be used; the message names the setting."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast plans are carried out. `limits` are settings of the cluster, by name; without one it
    stays as it is."""

    throttle: int = THROTTLE
    limits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Heal:
    """What is repaired when. Without a replication factor none is raised. `balances` levels an
    uneven cluster, and `removes_slow` empties slow brokers; both are only reported otherwise."""

    waits: Waits = field(default_factory=Waits)
    repairs_per_hour: int = REPAIRS_PER_HOUR
    replication_factor: int | None = None
    interval_s: float = 10.0
    balances: bool = False
    removes_slow: bool = False
    look_s: float = LOOK_S

    def acts_on(self) -> frozenset[Trigger]:
        """What is acted on beside repairs."""
        uneven = UNEVEN if self.balances else frozenset[Trigger]()
        return uneven | {Trigger.BROKER_SLOW} if self.removes_slow else uneven


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where the cells of a plan are searched, and in how many they are."""

    master: str = "local[*]"
    cells: int = CELLS


@dataclass(frozen=True, slots=True)
class Settings:
    """What a file says. Thresholds are fields of `rules.Thresholds`; capacities are by broker, or
    under None for those without their own."""

    thresholds: Mapping[str, Any] = field(default_factory=dict)
    capacity: Mapping[int | None, Mapping[str, float]] = field(default_factory=dict)
    excluded: Sequence[str] = ()
    sets: Mapping[str, frozenset[int]] = field(default_factory=dict)
    leaders_min: Mapping[str, int] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)
    heal: Heal = field(default_factory=Heal)
    spark: SparkSettings = field(default_factory=SparkSettings)

    def with_fewer_moves(self) -> "Settings":
        """These settings, for a plan of fewer and larger copies."""
        from odradek.balance.rules import FEWER_MOVES_PRICE

        return replace(self, thresholds={**self.thresholds, "copy_price": FEWER_MOVES_PRICE})

    def excluding(self, patterns: Iterable[str]) -> "Settings":
        """These settings with more topics excluded."""
        return replace(self, excluded=(*self.excluded, *map(_pattern, patterns)))


def read_settings(path: Path) -> Settings:
    """The settings of a file; InvalidSettings with the file's name where it is wrong."""
    try:
        return parse_settings(path.read_text(encoding="utf-8"))
    except InvalidSettings as error:
        raise InvalidSettings(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise InvalidSettings(f"{path}: TOML is UTF-8, and this file is not") from None


def parse_settings(text: str) -> Settings:
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidSettings(str(error)) from None
    for section, content in found.items():
        _known(section, SECTIONS, "section")
        if not isinstance(content, dict):
            raise InvalidSettings(f"[{section}] is a section, not a value")
    topics = found.get("topics", {})
    for name in topics:
        _known(name, TOPICS, "setting of [topics]")
    return Settings(
        thresholds=_thresholds(found.get("rules", {})),
        capacity=_capacities(found.get("capacity", {})),
        excluded=[_pattern(each) for each in _texts(topics.get("excluded", []), "excluded")],
        sets={_pattern(name): _ids(name, ids) for name, ids in topics.get("sets", {}).items()},
        leaders_min={
            _pattern(name): int(_number(f"minimum-leaders: {name}", value, 1, 1000))
            for name, value in topics.get("minimum-leaders", {}).items()
        },
        pace=_pace(found.get("pace", {})),
        heal=_heal(found.get("heal", {})),
        spark=_spark(found.get("spark", {})),
    )


def parse_span(text: str) -> float:
    """30s, 5min, 2h, 1d: seconds. Raises ValueError."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"a time looks like 30s, 5min or 2h, not {text!r}")
    return float(found[1]) * _SPAN_SECONDS[found[2]]


def _pace(table: Mapping[str, Any]) -> Pace:
    throttle, limits = THROTTLE, {}
    for name, value in table.items():
        _known(name, ("throttle", *PACES), "setting of [pace]")
        amount = _amount(f"[pace] {name}", value)
        if name == "throttle":
            throttle = int(_number("[pace] throttle", amount, 1, 1e18))
        else:
            setting, most = PACES[name]
            limits[setting] = str(_whole(f"[pace] {name}", amount, 1, most))
    return Pace(throttle, limits)


def _heal(table: Mapping[str, Any]) -> Heal:
    waits: dict[str, float] = {}
    given: dict[str, Any] = {}
    for name, value in table.items():
        _known(name, HEAL, "setting of [heal]")
        if name in WAITS:
            waits[WAITS[name]] = _span(f"[heal] {name}", value)
        elif name in SWITCHES:
            given[SWITCHES[name]] = _switch(f"[heal] {name}", value)
        elif name == "balance-interval":
            given["look_s"] = _number("[heal] balance-interval", _span(name, value), 0.1, 86_400)
        elif name == "interval":
            given["interval_s"] = _number("[heal] interval", _span(name, value), 0.1, 3600)
        elif name == "rate":
            given["repairs_per_hour"] = _whole("[heal] rate", value, 1, 1000)
        else:
            given["replication_factor"] = _whole("[heal] replication-factor", value, 1, 1000)
    return Heal(Waits(**waits), **given)


def _spark(table: Mapping[str, Any]) -> SparkSettings:
    given: dict[str, Any] = {}
    for name, value in table.items():
        _known(name, SPARK, "setting of [spark]")
        if name == "cells":
            given["cells"] = _whole("[spark] cells", value, 1, 10_000)
        elif not isinstance(value, str) or not value:
            raise InvalidSettings(f"[spark] master is a text such as local[4], not {value!r}")
        else:
            given["master"] = value
    return SparkSettings(**given)


def _known(name: str, known: Iterable[str], what: str) -> None:
    known = tuple(known)
    if name not in known:
        hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
        raise InvalidSettings(f"there is no {what} {name}{hint}")


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """a.b = 1 is a table in a table to TOML, and one name to us."""
    result: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            result |= _flat(value, f"{prefix}{name}.")
        else:
            result[f"{prefix}{name}"] = value
    return result


def _thresholds(table: Mapping[str, Any]) -> dict[str, Any]:
    balance, walls, low = [1.10] * 8, [0.7, 0.8, 0.8, 0.8], [0.0] * 4
    result: dict[str, Any] = {}
    for name, value in _flat(table).items():
        _known(name, RULE_NAMES, "setting of [rules]")
        if name in BALANCE:
            balance[BALANCE[name]] = _number(name, value, 1.0, 1000.0)
        elif name in WALLS:
            walls[WALLS[name]] = _number(name, value, 0.0, 1.0)
        elif name in LOW:
            low[LOW[name]] = _number(name, value, 0.0, 1.0)
        elif name in NUMBERS:
            least = 1.0 if name.endswith("threshold") else 0.0
            number = _number(name, value, least, 1e9)
            result[NUMBERS[name]] = number if name.endswith("threshold") else int(number)
        elif name == "off":
            result["off"] = frozenset(_rules_off(value))
        else:
            if value not in ("even", "strict"):
                raise InvalidSettings(f'racks is "even" or "strict", not {value!r}')
            result["strict_racks"] = value == "strict"
    return {
        "balance": tuple(balance),
        "walls": tuple(walls),
        "low_utilization": tuple(low),
        **result,
    }


def _rules_off(value: Any) -> list[str]:
    from odradek.balance.rules import DIMENSIONS, TOPIC_SPREAD

    names = _texts(value, "off")
    for name in names:
        _known(name, (*DIMENSIONS, TOPIC_SPREAD), "rule")
    return names


def _capacities(table: Mapping[str, Any]) -> dict[int | None, dict[str, float]]:
    result: dict[int | None, dict[str, float]] = {}
    for name, given in table.items():
        if name != "default" and not name.isdecimal():
            raise InvalidSettings(f"[capacity.{name}]: a broker's id, or default")
        if not isinstance(given, dict):
            raise InvalidSettings(f"[capacity.{name}] is a section, not a value")
        for resource in given:
            _known(resource, CAPACITIES, f"setting of [capacity.{name}]")
        result[None if name == "default" else int(name)] = {
            resource: _amount(f"[capacity.{name}] {resource}", value)
            for resource, value in given.items()
        }
    return result


def _amount(name: str, value: Any) -> float:
    """A number, or a text with a unit: 500GB, 1.5TiB."""
    if isinstance(value, str) and (match := _AMOUNT.fullmatch(value.strip())):
        number, unit, binary = match.groups()
        power = "kmgt".find(unit.lower()) + 1 if unit else 0
        return float(number) * (1024**power if binary else _UNITS[unit.lower()])
    return _number(name, value, 0.0, 1e18)


def _number(name: str, value: Any, least: float, most: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidSettings(f"{name} is a number, not {value!r}")
    if not least <= value <= most:
        raise InvalidSettings(f"{name} is {value}, and must be from {least:g} to {most:g}")
    return float(value)


def _whole(name: str, value: Any, least: int, most: int) -> int:
    number = _number(name, value, least, most)
    if number != int(number):
        raise InvalidSettings(f"{name} is a whole number, not {value!r}")
    return int(number)


def _span(name: str, value: Any) -> float:
    """A text with a unit, or a number of seconds."""
    if not isinstance(value, str):
        return _number(name, value, 0.0, 1e9)
    try:
        return parse_span(value)
    except ValueError as error:
        raise InvalidSettings(f"{name}: {error}") from None


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidSettings(f"{name} is true or false, not {value!r}")
    return value


def _texts(value: Any, name: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise InvalidSettings(f"{name} is a list of texts, not {value!r}")
    return value


def _ids(name: str, value: Any) -> frozenset[int]:
    if not isinstance(value, list) or not value or not all(type(each) is int for each in value):
        raise InvalidSettings(f"sets: {name} is a list of brokers, not {value!r}")
    return frozenset(value)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidSettings(f"{text!r} is no pattern of topics: {error}") from None
    return text
