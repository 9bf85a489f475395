"""What a console is started with, and what it refuses to be started with."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PORT = 8092


class InvalidOptions(Exception):
    """A combination that would be open to others without protection."""


@dataclass(frozen=True, slots=True)
class Options:
    """docs/spec/console.md section 3, security."""

    bootstrap: str
    security: Mapping[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = PORT
    names: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    proxy: str | None = None
    proxy_header: str = "x-forwarded-user"
    users: Path | None = None
    token_file: Path | None = None
    audit_file: Path | None = None
    broker_token: str | None = None
    read_only: bool = False
    # /metrics, /livez and /readyz, and nothing else: an exporter.
    metrics_only: bool = False
    # A socket to the program that holds the brokers' processes, by its descriptor.
    holder: int | None = None
    cluster_name: str = "main"
    timeout_s: float = 10.0
    # What opening one screenful of records may take.
    page_timeout_s: float = 3.0

    @property
    def has_tls(self) -> bool:
        return self.certificate is not None

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    def check(self) -> None:
        """Raises InvalidOptions: a console that others can reach has a login and TLS."""
        if self.key is not None and self.certificate is None:
            raise InvalidOptions("--key needs --cert")
        if self.proxy is not None and not _is_address(self.proxy):
            raise InvalidOptions(f"--behind-proxy wants an address, not {self.proxy!r}")
        if self.is_loopback:
            return
        if not self.has_tls and self.proxy is None:
            raise InvalidOptions(
                f"{self.host} can be reached by others: give --cert and --key, or --behind-proxy"
            )
        # What reads metrics sends the token itself: there is no page to log in to.
        if self.users is None and self.proxy is None and not self.metrics_only:
            raise InvalidOptions(f"{self.host} can be reached by others: give --users")

    def known_hosts(self, port: int) -> frozenset[str]:
        """What `Host` may say: anything else is another site that resolves to this address."""
        own = f"[{self.host}]" if ":" in self.host else self.host
        names = {own, *self.names}
        if self.is_loopback:
            names |= {"localhost", "127.0.0.1", "[::1]"}
        default = 443 if self.has_tls else 80
        with_port = {f"{name}:{port}".lower() for name in names}
        # Behind a proxy the port is the proxy's.
        bare = {name.lower() for name in names} if port == default or self.proxy else set()
        return frozenset(with_port | bare | {name.lower() for name in self.names})


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
