"""One broker's settings: what the operator wrote, what was changed since, and the defaults.

Layers, the first that has a name wins: this broker's dynamic settings (`/config/brokers/<id>`), the
cluster's (`/config/brokers/<default>`), what the operator wrote (file and command line), the
default. Topics stand on top with their own. The names, types and rules are in `settings`.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import Field, dataclass, fields
from enum import IntEnum
from itertools import dropwhile
from typing import Any, TypeVar

from odradek.broker.listeners import (
    Listener,
    SecurityProtocol,
    check_listeners,
    parse_listeners,
    parse_protocol_map,
)
from odradek.log.config import LogConfig
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.settings import (
    BROKER_SETTINGS,
    LISTENER_PREFIX,
    SOURCE,
    TOPIC_SETTINGS,
    WITHOUT_EFFECT,
    InvalidValue,
    Kind,
    Scope,
    Setting,
    SettingSource,
    Value,
    parse,
    prefixed,
    unknown_name,
)

__all__ = ["BrokerConfig", "DescribedSetting", "Listener", "Source", "Synonym"]

logger = logging.getLogger(__name__)


class Source(IntEnum):
    """Where a value comes from, numbered as DescribeConfigs numbers it."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class Synonym:
    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class DescribedSetting:
    """A setting as DescribeConfigs reports it."""

    setting: Setting
    value: str | None
    source: Source
    read_only: bool
    synonyms: tuple[Synonym, ...]

    @property
    def is_sensitive(self) -> bool:
        """Also of a kind that is not known here: it may be a password of another broker's."""
        return self.setting.kind in (Kind.PASSWORD, Kind.UNKNOWN)


# Settings that belong together: asking for one shows the others (`log.retention.*`).
_RELATED: Mapping[str, tuple[str, ...]] = {
    name: tuple(other for other, _ in topic.synonyms)
    for topic in TOPIC_SETTINGS.values()
    for name, _ in topic.synonyms
    if len(topic.synonyms) > 1 and name != "log.flush.scheduler.interval.ms"
}
# Settings that exist only while they are set: DescribeConfigs leaves them out otherwise.
_DYNAMIC_ONLY = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
HTTP_LISTENER = "odradek.http.listener"
PORT_MAX = 65535
C = TypeVar("C")

# The least that a limit on connections can be set to while brokers run. The operator who writes it
# into a broker's file may have less: that can be taken back without a connection.
DYNAMIC_MIN = {"max.connections": 100, "max.connections.per.ip": 20}


class BrokerConfig:
    """The settings of one broker. `on_change` listeners get the names of settings that change."""

    def __init__(self, written: Mapping[str, str] | None = None) -> None:
        self._static: dict[str, str] = {}
        self._dynamic: dict[str, str] = {}
        self._dynamic_default: dict[str, str] = {}
        self._listeners: list[Callable[[frozenset[str]], None]] = []
        for name, text in (written or {}).items():
            if name in WITHOUT_EFFECT:
                logger.warning("%s=%s has no effect here", name, text)
                continue
            parse(_broker_setting(name), text)
            self._static[name] = text.strip()
        self._values = self._effective()
        self._prefixed = self._of_listeners()
        self._check_together()

    # Reading

    def integer(self, name: str) -> int:
        value = self._values[name]
        assert isinstance(value, int), f"{name} is not a whole number"
        return value

    def number(self, name: str) -> float:
        value = self._values[name]
        assert isinstance(value, float | int), f"{name} is not a number"
        return value

    def flag(self, name: str) -> bool:
        return self._values[name] is True

    def text(self, name: str) -> str | None:
        value = self._values[name]
        assert value is None or isinstance(value, str), f"{name} is not text"
        return value

    @property
    def protocol(self) -> ProtocolVersion:
        """What this broker sends to others and stores."""
        return ProtocolVersion.parse(self.text("inter.broker.protocol.version") or "")

    def listeners(self) -> list[Listener]:
        return parse_listeners(self.text("listeners") or "", self._protocols(), "listeners")

    def advertised_listeners(self) -> list[Listener]:
        """The addresses that clients get in metadata: the listeners themselves unless set."""
        written = self.text("advertised.listeners")
        if not written:
            return self.listeners()
        return parse_listeners(written, self._protocols(), "advertised.listeners")

    def http_listener(self) -> tuple[str, int] | None:
        """Host and port of `odradek.http.listener`; None if it is off."""
        written = self.text(HTTP_LISTENER)
        if not written:
            return None
        host, colon, port = written.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > PORT_MAX:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{HTTP_LISTENER}: expected host:port, not {written}"
            )
        return host.strip("[]"), int(port)

    def http_listener_bound(self, port: int) -> None:
        """What was written with port 0 is shown with the port that it got."""
        host, _, _ = self._static[HTTP_LISTENER].rpartition(":")
        self._static[HTTP_LISTENER] = f"{host}:{port}"
        self._values = self._effective()

    def inter_broker_listener(self) -> str:
        """The name of the listener that brokers reach each other over."""
        named = self.text("inter.broker.listener.name")
        return (named or self.text("security.inter.broker.protocol") or "").upper()

    def control_plane_listener(self) -> str | None:
        """The name of the listener that the controller reaches brokers over, if it has its own."""
        named = self.text("control.plane.listener.name")
        return named.upper() if named else None

    def listener_value(self, listener: str, name: str, mechanism: str | None = None) -> str | None:
        """A setting as this listener has it: with both prefixes, with the listener's, or plain."""
        front = f"{LISTENER_PREFIX}{listener.lower()}."
        candidates = [front + name, name]
        if mechanism is not None:
            candidates.insert(0, f"{front}{mechanism.lower()}.{name}")
        for candidate in candidates:
            if (text := self._written(candidate)) is not None:
                return text
        return BROKER_SETTINGS[name].default

    def by_listener(self, name: str) -> dict[str, int]:
        """A whole number that some listeners have a value of their own for."""
        found = {}
        for listener in self.listeners():
            text = self._written(f"{LISTENER_PREFIX}{listener.name.lower()}.{name}")
            if text is not None:
                found[listener.name] = int(text)
        return found

    def is_written(self, name: str) -> bool:
        return self._written(name) is not None

    def _protocols(self) -> Mapping[str, SecurityProtocol]:
        return parse_protocol_map(self.text("listener.security.protocol.map") or "")

    def log_dirs(self) -> list[str]:
        written = self.text("log.dirs") or self.text("log.dir") or ""
        return [path.strip() for path in written.split(",") if path.strip()]

    def log_config(self, overrides: Mapping[str, str] | None = None) -> LogConfig:
        """A topic's settings for its logs. What cannot be read keeps its default."""
        written = overrides or {}
        values = {
            field.name: source.value(self._topic_value(source.setting, written))
            for field, source in _sources(LogConfig)
        }
        # The settings' types are those of the fields.
        return LogConfig(**values)  # type: ignore[arg-type]

    def make(self, kind: Callable[..., C], **derived: object) -> C:
        """A package's config dataclass, filled from the settings its fields are declared with.

        `derived` are fields that no setting has on its own.
        """
        values = {
            field.name: source.value(self._values[source.setting.name])
            for field, source in _sources(kind)
        }
        return kind(**values, **derived)

    def _topic_value(self, setting: Setting, overrides: Mapping[str, str]) -> Value:
        override = overrides.get(setting.name)
        if override is not None:
            try:
                return parse(setting, override)
            except KafkaError as error:
                logger.error("using the default instead: %s", error.message)
        return parse(setting, self._topic_default(setting))

    def _topic_default(self, setting: Setting) -> str | None:
        for name, factor in setting.synonyms:
            text = self._written(name)
            if text is None:
                text = BROKER_SETTINGS[name].default
            if text is not None:
                return _scaled(text, factor)
        return setting.default

    def _written(self, name: str) -> str | None:
        for layer in (self._dynamic, self._dynamic_default, self._static):
            if name in layer:
                return layer[name]
        return None

    # Changing

    def on_change(self, listener: Callable[[frozenset[str]], None]) -> None:
        self._listeners.append(listener)

    def set_dynamic(self, own: Mapping[str, str], cluster: Mapping[str, str]) -> frozenset[str]:
        """Takes what the store now says, calls the listeners, returns the names that changed."""
        self._dynamic = _readable(own, logger)
        self._dynamic_default = _readable(cluster, logger)
        before, self._values = self._values, self._effective()
        prefixed_before, self._prefixed = self._prefixed, self._of_listeners()
        changed = frozenset(
            name for name in before if before[name] != self._values[name]
        ) | frozenset(name for name, _ in prefixed_before.items() ^ self._prefixed.items())
        if changed:
            logger.info("settings changed: %s", ", ".join(sorted(changed)))
            for listener in self._listeners:
                listener(changed)
        return changed

    def with_own(self, own: Mapping[str, str]) -> "BrokerConfig":
        """These settings as they would be if the store had these for this broker."""
        made = copy(self)
        made._listeners = []
        made._dynamic = _readable(own, logger)
        made._values, made._prefixed = made._effective(), made._of_listeners()
        return made

    def _effective(self) -> dict[str, Value]:
        return {
            name: parse(setting, self._written(name) if self._has(name) else setting.default)
            for name, setting in BROKER_SETTINGS.items()
        }

    def _of_listeners(self) -> dict[str, str]:
        """What is written for single listeners."""
        layers = (self._static, self._dynamic_default, self._dynamic)
        merged = {name: text for layer in layers for name, text in layer.items()}
        return {name: text for name, text in merged.items() if name.startswith(LISTENER_PREFIX)}

    def _has(self, name: str) -> bool:
        return self._written(name) is not None

    def _check_together(self) -> None:
        """Rules between settings, and between the listeners."""
        named, protocol = (
            self.is_written(name)
            for name in ("inter.broker.listener.name", "security.inter.broker.protocol")
        )
        if named and protocol:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "Only one of inter.broker.listener.name and security.inter.broker.protocol can be"
                " set",
            )
        self._check_limits()
        self.http_listener()
        check_listeners(
            self.listeners(),
            self.advertised_listeners(),
            self.inter_broker_listener(),
            self.control_plane_listener(),
        )
        validate_topic(self, {})

    def _check_limits(self) -> None:
        delay_ms = self.integer("connection.failed.authentication.delay.ms")
        idle_ms = self.integer("connections.max.idle.ms")
        if 0 <= idle_ms <= delay_ms:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"connection.failed.authentication.delay.ms {delay_ms} must be below"
                f" connections.max.idle.ms {idle_ms}",
            )
        per_address = self.integer("max.connections.per.ip")
        if per_address == 0 and not self.text("max.connections.per.ip.overrides"):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "max.connections.per.ip can be 0 only with max.connections.per.ip.overrides: no"
                " client could connect",
            )

    # Describing

    def describe_broker(self) -> Iterator[DescribedSetting]:
        layers = {*self._dynamic, *self._dynamic_default, *self._static}
        of_listeners = sorted(name for name in layers if name not in BROKER_SETTINGS)
        for name in (*BROKER_SETTINGS, *of_listeners):
            setting = _broker_setting(name)
            synonyms = tuple(self._synonyms(name))
            if name in _DYNAMIC_ONLY and not synonyms:
                continue
            text = self._written(name)
            yield DescribedSetting(
                setting,
                setting.default if text is None else text,
                synonyms[0].source if synonyms else Source.DEFAULT,
                setting.scope is Scope.READ_ONLY,
                synonyms,
            )

    def describe_cluster_default(self) -> Iterator[DescribedSetting]:
        """What is set for all brokers (`/config/brokers/<default>`)."""
        source = Source.DYNAMIC_DEFAULT_BROKER
        for name, text in self._dynamic_default.items():
            yield DescribedSetting(
                _broker_setting(name), text, source, False, (Synonym(name, text, source),)
            )

    def describe_topic(self, overrides: Mapping[str, str]) -> Iterator[DescribedSetting]:
        for name, setting in TOPIC_SETTINGS.items():
            own = overrides.get(name)
            synonyms = tuple(self._synonyms(setting.synonyms[0][0]) if setting.synonyms else ())
            if own is not None:
                synonyms = (Synonym(name, own, Source.TOPIC), *synonyms)
            yield DescribedSetting(
                setting,
                self._topic_default(setting) if own is None else own,
                synonyms[0].source if synonyms else Source.DEFAULT,
                False,
                synonyms,
            )
        for name, own in overrides.items():
            if name not in TOPIC_SETTINGS:
                setting = Setting(name, Kind.UNKNOWN, None, "Not known here, and without effect.")
                synonyms = (Synonym(name, own, Source.TOPIC),)
                yield DescribedSetting(setting, own, Source.TOPIC, False, synonyms)

    def _synonyms(self, name: str) -> Iterator[Synonym]:
        """Every layer that has a say, strongest first (KIP-226), from the first that names this
        setting itself: a related one alone is no synonym.
        """
        return dropwhile(lambda synonym: synonym.name != name, self._related(name))

    def _related(self, name: str) -> Iterator[Synonym]:
        names = _RELATED.get(name, (name,))
        layers = (
            (self._dynamic, Source.DYNAMIC_BROKER),
            (self._dynamic_default, Source.DYNAMIC_DEFAULT_BROKER),
            (self._static, Source.STATIC_BROKER),
        )
        for layer, source in layers:
            for each in names:
                if each in layer:
                    yield Synonym(each, layer[each], source)
        for each in names:
            default = _broker_setting(each).default if each in BROKER_SETTINGS else None
            if default is not None and each not in _DYNAMIC_ONLY:
                yield Synonym(each, default, Source.DEFAULT)


def _sources(kind: Any) -> Iterator[tuple[Field[Any], SettingSource]]:
    """The fields of a config dataclass that have their value from a setting."""
    return ((each, each.metadata[SOURCE]) for each in fields(kind) if SOURCE in each.metadata)


def validate_topic(config: BrokerConfig, overrides: Mapping[str, str | None]) -> None:
    """Raises KafkaError(INVALID_CONFIG) for the first of a topic's settings that cannot be."""
    for name, text in overrides.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            raise unknown_name(name, TOPIC_SETTINGS, "topic")
        if text is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}"
            )
        parse(setting, text)
    written = {name: text for name, text in overrides.items() if text is not None}
    log = config.log_config(written)
    if log.max_compaction_lag_ms < log.min_compaction_lag_ms:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"min.compaction.lag.ms {log.min_compaction_lag_ms} is above"
            f" max.compaction.lag.ms {log.max_compaction_lag_ms}",
        )


def validate_dynamic(settings: Mapping[str, str], per_broker: bool) -> None:
    """Raises KafkaError(INVALID_REQUEST) unless brokers can take these while they run (KIP-226)."""
    fixed = [name for name in settings if _broker_setting(name).scope is Scope.READ_ONLY]
    if fixed:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs dynamically: Set({', '.join(fixed)})",
        )
    for name in settings:
        scope = _broker_setting(name).scope
        if name.startswith("ssl."):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "These security configs can be dynamically updated only per-listener using the"
                f" listener prefix: Set({name})",
            )
        if scope is Scope.PER_BROKER and not per_broker and "throttled" not in name:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Cannot update these configs at default cluster level,"
                f" broker id must be specified: Set({name})",
            )
    for name, text in settings.items():
        try:
            parse(_broker_setting(name), text)
        except InvalidValue as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from None
        _check_lockout(name, text)


def _check_lockout(name: str, text: str) -> None:
    """Raise KafkaError for a limit that would keep out the clients who could take it back."""
    plain = (
        name.removeprefix(LISTENER_PREFIX).partition(".")[2] if name not in DYNAMIC_MIN else name
    )
    least = DYNAMIC_MIN.get(plain)
    if least is not None and int(text) < least:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {text} for configuration {name}: while brokers run it must be at least"
            f" {least}, or administrators and brokers themselves could not connect any more",
        )


def is_password(name: str) -> bool:
    """Whether a broker setting is one that is kept encrypted."""
    setting = BROKER_SETTINGS.get(name) or prefixed(name)
    return setting is not None and setting.kind is Kind.PASSWORD


def _broker_setting(name: str) -> Setting:
    setting = BROKER_SETTINGS.get(name) or prefixed(name)
    if setting is None:
        raise unknown_name(name, BROKER_SETTINGS, "broker")
    return setting


def _readable(written: Mapping[str, str], log: logging.Logger) -> dict[str, str]:
    """What another broker may have written and we can use; the rest is logged, not refused."""
    usable = {}
    for name, text in written.items():
        try:
            parse(_broker_setting(name), text)
        except KafkaError as error:
            log.warning("ignored: %s", error.message)
        else:
            usable[name] = text
    return usable


def _scaled(text: str, factor: int) -> str:
    if factor == 1:
        return text
    return str(max(int(text) * factor, -1))


def parse_assignments(pairs: Iterable[str]) -> dict[str, str]:
    """`name=value` as the command line has them."""
    written = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"expected name=value, not {pair}")
        written[name.strip()] = text.strip()
    return written
