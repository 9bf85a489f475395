"""Listeners: names, addresses, security protocols, and the rules between them.

docs/spec/security.md, section 1. A wrong combination refuses the start and names the setting, as in
Kafka; the one address that cannot be advertised is caught here and not by the first client.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from odradek.wire.errors import ErrorCode, KafkaError

__all__ = [
    "Listener",
    "SecurityProtocol",
    "check_listeners",
    "parse_listeners",
    "parse_protocol_map",
]

ANY_ADDRESS = "0.0.0.0"


class SecurityProtocol(IntEnum):
    """Numbered as UpdateMetadata numbers them."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class Listener:
    """`NAME://host:port`; the protocol is the name's, by `listener.security.protocol.map`."""

    name: str
    host: str
    port: int
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT


def parse_protocol_map(text: str) -> dict[str, SecurityProtocol]:
    """`NAME:PROTOCOL,…`. Raises KafkaError(INVALID_CONFIG)."""
    protocols: dict[str, SecurityProtocol] = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        name, _, protocol = (part.strip().upper() for part in pair.partition(":"))
        if not name or protocol not in SecurityProtocol.__members__:
            raise _invalid(f"listener.security.protocol.map: {pair} is not NAME:PROTOCOL")
        protocols[name] = SecurityProtocol[protocol]
    return protocols


def parse_listeners(
    text: str, protocols: Mapping[str, SecurityProtocol], setting: str
) -> list[Listener]:
    """`NAME://host:port,…`. Raises KafkaError(INVALID_CONFIG)."""
    return [_parse(each, protocols, setting) for each in text.split(",") if each.strip()]


def _parse(text: str, protocols: Mapping[str, SecurityProtocol], setting: str) -> Listener:
    name, separator, rest = text.strip().partition("://")
    host, colon, port = rest.rpartition(":")
    if not (name and separator and colon and port.isdigit() and int(port) < 65536):
        raise _invalid(f"{setting}: Invalid listener {text.strip()}: expected NAME://host:port")
    protocol = protocols.get(name.upper())
    if protocol is None:
        raise _invalid(
            f"{setting}: No security protocol defined for listener {name.upper()}: add it to"
            " listener.security.protocol.map"
        )
    return Listener(name.upper(), host.strip("[]"), int(port), protocol)


def check_listeners(
    listeners: Sequence[Listener],
    advertised: Sequence[Listener],
    inter_broker: str,
    control_plane: str | None,
) -> None:
    """Raises KafkaError(INVALID_CONFIG) for the first rule that is broken."""
    if not listeners:
        raise _invalid("listeners names nowhere to listen")
    for setting, group in (("listeners", listeners), ("advertised.listeners", advertised)):
        names = [listener.name for listener in group]
        if len(set(names)) < len(names):
            raise _invalid(f"{setting}: Each listener must have a different name")
    _check_ports(listeners)
    known = {listener.name for listener in listeners}
    names = [listener.name for listener in advertised]
    if any(name not in known for name in names):
        raise _invalid("advertised.listeners names one that is not in listeners")
    if any(listener.host == ANY_ADDRESS for listener in advertised):
        raise _invalid(
            f"advertised.listeners: no client can connect to {ANY_ADDRESS}: set it to an address"
            " of this host, or listen on NAME://:port to advertise its name"
        )
    if inter_broker not in names:
        raise _invalid(
            f"the inter-broker listener {inter_broker} is not among the advertised listeners"
            f" {', '.join(names)}: set inter.broker.listener.name or"
            " security.inter.broker.protocol"
        )
    if control_plane is not None and control_plane not in names:
        raise _invalid(
            f"control.plane.listener.name {control_plane} is not among the advertised listeners"
        )
    if control_plane == inter_broker:
        raise _invalid(
            f"control.plane.listener.name must not be the inter-broker listener {inter_broker}"
        )


def _check_ports(listeners: Sequence[Listener]) -> None:
    """One port each, but for an IPv4 and an IPv6 address that share one; port 0 is any free one."""
    by_port: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.port:
            by_port.setdefault(listener.port, []).append(listener)
    for port, group in by_port.items():
        if len(group) > 1 and _ip_versions(group) != [4, 6]:
            raise _invalid(f"listeners: Each listener must have a different port; {port} repeats")


def _ip_versions(listeners: Sequence[Listener]) -> list[int]:
    from ipaddress import ip_address

    try:
        return sorted(ip_address(listener.host).version for listener in listeners)
    except ValueError:
        return []


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
