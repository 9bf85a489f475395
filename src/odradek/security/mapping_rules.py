"""`ssl.principal.mapping.rules`: from a certificate's subject to a user name.

A list of `DEFAULT` (the subject as it is) and `RULE:pattern/replacement/` with an optional `L` or
`U` for lower or upper case. The first rule whose pattern matches the whole subject wins. Patterns
are Java's; the few constructs that Python's `re` has not, or means differently, are rejected by
name instead of being taken for something else. docs/spec/security.md, section 2.3.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["InvalidMappingRules", "NoMatchingRule", "PrincipalMapper"]

# A slash inside pattern or replacement is written `\/`.
_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_REFERENCE = re.compile(r"\\(.)|\$(\d+)")
# Java only: character properties, \h \R \X \G \Q…\E, and quantifiers on quantifiers before 3.11.
_JAVA_ONLY = re.compile(r"(?<!\\)(?:\\\\)*\\([pPhHRXGQEzkK])")
_CASES: dict[str, Callable[[str], str]] = {"": lambda t: t, "L": str.lower, "U": str.upper}


class InvalidMappingRules(ValueError):
    """The setting cannot be read."""


class NoMatchingRule(Exception):
    """No rule matches: the client has no name, and its connection is closed."""


@dataclass(frozen=True)
class _Rule:
    pattern: re.Pattern[str] | None  # None: DEFAULT
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        match = self.pattern.fullmatch(subject)
        return None if match is None else _CASES[self.case](_substitute(self.replacement, match))


class PrincipalMapper:
    """The rules of one listener."""

    def __init__(self, text: str = "DEFAULT") -> None:
        self._rules: Sequence[_Rule] = tuple(_parse(text))
        if not self._rules:
            self._rules = (_Rule(None),)

    def user(self, subject: str) -> str:
        """The name for a subject. Raises NoMatchingRule."""
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        raise NoMatchingRule(f"no rule of ssl.principal.mapping.rules matches {subject!r}")


def _parse(text: str) -> Iterator[_Rule]:
    at = 0
    while at < len(text):
        if text[at] in " ,\t\n":
            at += 1
            continue
        if match := _RULE.match(text, at):
            yield _Rule(_compile(match[1].replace("\\/", "/")), match[2], match[3])
            at = match.end()
        elif text.startswith("DEFAULT", at):
            yield _Rule(None)
            at += len("DEFAULT")
        else:
            raise InvalidMappingRules(
                f"{text[at:]!r} is neither DEFAULT nor RULE:pattern/name/[LU]"
            )
        if text[at:].strip() and not text[at:].lstrip().startswith(","):
            raise InvalidMappingRules(f"a comma is missing before {text[at:]!r}")


def _compile(pattern: str) -> re.Pattern[str]:
    if unknown := _JAVA_ONLY.search(pattern):
        raise InvalidMappingRules(
            f"\\{unknown[1]} in {pattern!r} is Java's own; write a character class instead"
        )
    try:
        # In Java \w, \d, \s and (?i) mean ASCII.
        return re.compile(pattern, re.ASCII)
    except re.error as error:
        raise InvalidMappingRules(f"{pattern!r} is not a regular expression: {error}") from None


def _substitute(replacement: str, match: re.Match[str]) -> str:
    """Java's replacement: `$n` takes as many digits as there are groups for; the rest is text."""
    groups = match.re.groups

    def one(reference: re.Match[str]) -> str:
        if reference[1] is not None:
            return reference[1]
        digits = reference[2]
        for length in range(len(digits), 0, -1):
            number = int(digits[:length])
            if number <= groups:
                return (match[number] or "") + digits[length:]
        return reference[0]

    return _REFERENCE.sub(one, replacement)
