"""JAAS configuration as Kafka writes it: `module flag name=value … ;`, exactly one module.

Grammar and limits of docs/spec/security.md, section 3.7. The same text serves clients (what to log
in with) and listeners (whom to let in). A value is a secret until the contrary is known: `repr`
shows the module and the user, nothing else.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = ["InvalidJaas", "JaasEntry", "Module", "jaas_text", "parse_jaas"]

_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
_FORBIDDEN = frozenset(
    {
        "com.sun.security.auth.module.JndiLoginModule",
        "com.sun.security.auth.module.LdapLoginModule",
    }
)
_TOKEN = re.compile(
    r"""\s*(?:
      /\*.*?\*/                      # comment
    | /[^\n]*                        # comment to the end of the line: Java's reader needs one slash
    | "(?P<double>(?:\\.|[^"\\])*)"
    | '(?P<single>(?:\\.|[^'\\])*)'
    | (?P<mark>[;={}])
    | (?P<word>[^\s;={}"'/]+)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\x07", "v": "\v"}
LENGTH_MAX = 1 << 20


class Module:
    """The login modules we know, by Kafka's class names."""

    PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
    SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
    OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

    BY_MECHANISM: Mapping[str, str] = {
        "PLAIN": PLAIN,
        "SCRAM-SHA-256": SCRAM,
        "SCRAM-SHA-512": SCRAM,
        "OAUTHBEARER": OAUTHBEARER,
    }


class InvalidJaas(ValueError):
    """The text cannot be read. The message never contains a value of it."""


@dataclass(frozen=True, repr=False)
class JaasEntry:
    """One login module with its options."""

    module: str
    flag: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        user = self.options.get("username", "")
        return f"JaasEntry({self.module}, username={user!r}, [hidden])"

    def require_mechanism(self, mechanism: str) -> "JaasEntry":
        """Itself, if its module serves this mechanism."""
        expected = Module.BY_MECHANISM.get(mechanism)
        if self.module != expected:
            raise InvalidJaas(f"{mechanism} needs the module {expected}, not {self.module}")
        return self


@dataclass(frozen=True)
class _Token:
    text: str
    is_mark: bool = False
    is_quoted: bool = False


def parse_jaas(text: str) -> JaasEntry:
    """A setting `sasl.jaas.config`: one entry, ended by a semicolon."""
    tokens = list(_tokens(text))
    entry, rest = _entry(tokens, 0)
    if rest != len(tokens):
        raise InvalidJaas("a JAAS setting has exactly one login module")
    return entry


_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.$-]*", re.ASCII)


def jaas_text(module: str, **options: str) -> str:
    """The inverse of `parse_jaas`."""
    pairs = (
        f"{name if _PLAIN_NAME.fullmatch(name) else _quoted(name)}={_quoted(value)}"
        for name, value in options.items()
    )
    return " ".join([module, "required", *pairs]) + ";"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _entry(tokens: list[_Token], at: int) -> tuple[JaasEntry, int]:
    module = _word(tokens, at, "a login module")
    if module in _FORBIDDEN:
        raise InvalidJaas(f"the login module {module} is not allowed")
    flag = _word(tokens, at + 1, "a control flag").lower()
    if flag not in _FLAGS:
        raise InvalidJaas(f"the flag of {module} must be one of {', '.join(sorted(_FLAGS))}")
    at += 2
    options: dict[str, str] = {}
    while True:
        if at >= len(tokens):
            raise InvalidJaas(f"the entry of {module} does not end with a semicolon")
        if tokens[at].is_mark and tokens[at].text == ";":
            return JaasEntry(module, flag, options), at + 1
        name = _word(tokens, at, "an option's name")
        at = _mark(tokens, at + 1, "=")
        options[name] = _word(tokens, at, f"the value of {name}")
        at += 1


def _word(tokens: list[_Token], at: int, what: str) -> str:
    if at >= len(tokens) or tokens[at].is_mark:
        raise InvalidJaas(f"{what} is missing")
    token = tokens[at]
    if not token.is_quoted and (token.text[0].isdigit() or token.text[0] in "-."):
        raise InvalidJaas(f"{what} begins like a number and must be quoted")
    return token.text


def _mark(tokens: list[_Token], at: int, mark: str) -> int:
    if at >= len(tokens) or not tokens[at].is_mark or tokens[at].text != mark:
        raise InvalidJaas(f"a {mark!r} is missing")
    return at + 1


def _tokens(text: str) -> Iterator[_Token]:
    if len(text) > LENGTH_MAX:
        raise InvalidJaas("the text is longer than a megabyte")
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise InvalidJaas(f"cannot read the text at character {at}")
        at = match.end()
        quoted = match["double"] if match["double"] is not None else match["single"]
        if quoted is not None:
            yield _Token(_ESCAPE.sub(_unescape, quoted), is_quoted=True)
        elif match["mark"] is not None:
            yield _Token(match["mark"], is_mark=True)
        elif match["word"] is not None:
            yield _Token(match["word"])


def _unescape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[1], match[1])
