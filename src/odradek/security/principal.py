"""Principals and host addresses in the text forms that ACLs are compared with.

docs/spec/security.md, section 4.1. Both forms must be Java's to the letter: an ACL that an Apache
Kafka broker wrote matches here only if the texts are equal.
"""

from dataclasses import dataclass, field

__all__ = ["ANONYMOUS", "USER", "Principal", "host_text"]

USER = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """A type and a name. Whether it logged in by a delegation token does not count for equality."""

    name: str
    type: str = USER
    token_authenticated: bool = field(default=False, compare=False)
    # Its text, made once: each decision of an authorizer is looked up by it.
    text: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", f"{self.type}:{self.name}")

    @classmethod
    def parse(cls, text: str) -> "Principal":
        """The inverse of `str`; a name may contain colons. Raises ValueError."""
        kind, colon, name = text.partition(":")
        if not colon or not kind or not name:
            raise ValueError(f"a principal has the form User:name, not {text!r}")
        return cls(name, kind)

    def __str__(self) -> str:
        return self.text


ANONYMOUS = Principal("ANONYMOUS")


def host_text(address: str) -> str:
    """A peer's address as Java prints it: IPv6 in eight groups, IPv4-mapped as IPv4."""
    if ":" not in address:
        return address  # IPv4 is printed as everywhere
    from ipaddress import IPv6Address  # costly, and seldom needed

    try:
        parsed = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    packed = parsed.packed
    return ":".join(f"{packed[i] << 8 | packed[i + 1]:x}" for i in range(0, 16, 2))
