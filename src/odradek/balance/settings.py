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

Everything is optional. A name that is not known is refused with the nearest that is.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

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
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?(?:/s)?", re.IGNORECASE)


class InvalidSettings(ValueError):
    """A file that cannot be used; the message names the setting."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a file says. Thresholds are fields of `rules.Thresholds`; capacities are by broker, or
    under None for those without their own."""

    thresholds: Mapping[str, Any] = field(default_factory=dict)
    capacity: Mapping[int | None, Mapping[str, float]] = field(default_factory=dict)
    excluded: Sequence[str] = ()
    sets: Mapping[str, frozenset[int]] = field(default_factory=dict)
    leaders_min: Mapping[str, int] = field(default_factory=dict)

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
        _known(name, ("excluded", "sets", "minimum-leaders"), "setting of [topics]")
    return Settings(
        thresholds=_thresholds(found.get("rules", {})),
        capacity=_capacities(found.get("capacity", {})),
        excluded=[_pattern(each) for each in _texts(topics.get("excluded", []), "excluded")],
        sets={_pattern(name): _ids(name, ids) for name, ids in topics.get("sets", {}).items()},
        leaders_min={
            _pattern(name): int(_number(f"minimum-leaders: {name}", value, 1, 1000))
            for name, value in topics.get("minimum-leaders", {}).items()
        },
    )


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
