"""A schema as Spark's DDL writes it, checked without Spark: `id int, tags array<string>`.

Spark itself reads the schema later. This finds what is misspelt before Spark has been started, and
names the column.
"""

import difflib
import re
from collections.abc import Callable

# Every name of a type that is not made of others, and those that may have numbers in parentheses.
SIMPLE = """
bigint binary boolean byte char date dec decimal double float geography geometry int integer
interval long numeric real short smallint string time timestamp timestamp_ltz timestamp_ntz
tinyint varchar variant void
"""
WITH_NUMBERS = "char varchar dec decimal numeric time string geometry geography"
INTERVAL_UNITS = "year month day hour minute second to"
TOKEN = re.compile(r"\s*(?:(`[^`]*`)|([A-Za-z0-9_]+)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(.))")


class DdlError(ValueError):
    """A schema that Spark would refuse; says which column, and why."""


def check_schema(text: str) -> None:
    """Raise DdlError if this is no list of columns."""
    parser = _Parser(text)
    names: set[str] = set()
    while True:
        name = parser.column()
        if name.lower() in names:
            raise DdlError(f"column {name} is there twice")
        names.add(name.lower())
        if not parser.take(","):
            break
    if parser.next:
        raise DdlError(f"column {name}: a comma is expected before {parser.next!r}")


class _Parser:
    """Reads a schema from left to right. Words are compared in lower case."""

    def __init__(self, text: str) -> None:
        self._tokens = [
            match[0].strip() for match in TOKEN.finditer(text.strip()) if match[0].strip()
        ]
        self._at = 0

    @property
    def next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self, *words: str) -> bool:
        """Go over these words if they come next."""
        there = [token.lower() for token in self._tokens[self._at : self._at + len(words)]]
        if there != list(words):
            return False
        self._at += len(words)
        return True

    def _word(self, what: str) -> str:
        token = self.next
        if not re.fullmatch(r"`[^`]+`|\w+", token):
            raise DdlError(f"{what} is expected" + (f", not {token!r}" if token else " at the end"))
        self._at += 1
        return token.strip("`")

    def column(self) -> str:
        """A name, its type, and what may be said of it."""
        name = self._word("the name of a column")
        self.take(":")
        try:
            self._type()
            self.take("not", "null")
            if self.take("comment"):
                self._at += 1
        except DdlError as error:
            raise DdlError(f"column {name}: {error}") from None
        return name

    def _type(self) -> None:
        name = self._word("a type").lower()
        if name == "array":
            self._inside(self._type)
        elif name == "map":
            self._inside(self._type, self._type)
        elif name == "struct":
            self._struct()
        elif name not in SIMPLE.split():
            near = difflib.get_close_matches(name, [*SIMPLE.split(), "array", "map", "struct"], n=1)
            raise DdlError(
                f"there is no type {name}" + (f"; did you mean {near[0]}?" if near else "")
            )
        elif name == "interval":
            while self.next.lower() in INTERVAL_UNITS.split():
                self._at += 1
        elif self.take("("):
            self._numbers(name)

    def _numbers(self, name: str) -> None:
        if name not in WITH_NUMBERS.split():
            raise DdlError(f"{name} takes no numbers")
        while self._word("a number") and self.take(","):
            pass
        self._expect(")")

    def _inside(self, *parts: Callable[[], None]) -> None:
        self._expect("<")
        for index, part in enumerate(parts):
            if index:
                self._expect(",")
            part()
        self._expect(">")

    def _struct(self) -> None:
        self._expect("<")
        if self.take(">"):
            return
        self.column()
        while self.take(","):
            self.column()
        self._expect(">")

    def _expect(self, token: str) -> None:
        if not self.take(token):
            raise DdlError(f"{token} is expected" + (f" before {self.next!r}" if self.next else ""))
