"""Where in a TOML file a value stands, so that an error can point at it.

Python's parser gives the values and not their lines. This finds the lines of keys and tables by
reading the file line by line; a key that it does not find (inside an inline table, say) gets the
line of what it is in.
"""

import re
from collections.abc import Sequence

Path = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(#.*)?$")
# A dot inside quotes parts nothing.
_PART = re.compile(r"""\s*(?:"[^"]*"|'[^']*'|[^."']+)""")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_.\-]|"[^"]*"|'[^']*')+)\s*=""")


class Lines:
    """The lines of the keys and tables of a file."""

    def __init__(self, text: str) -> None:
        self._lines: dict[Path, int] = {(): 1}
        table: Path = ()
        counts: dict[Path, int] = {}
        quote = ""
        for number, line in enumerate(text.splitlines(), start=1):
            if quote:
                quote = "" if quote in line else quote
                continue
            if header := _HEADER.match(line):
                table = self._open(header[1], _parts(header[2]), counts)
                self._lines.setdefault(table, number)
            elif key := _KEY.match(line):
                self._lines.setdefault((*table, *_parts(key[1])), number)
                for mark in ('"""', "'''"):
                    if line.count(mark) == 1:
                        quote = mark

    def _open(self, bracket: str, names: Sequence[str], counts: dict[Path, int]) -> Path:
        path: Path = ()
        for name in names[:-1]:
            path = (*path, name)
            if path in counts:
                path = (*path, counts[path])
        path = (*path, names[-1])
        if bracket == "[[":
            counts[path] = counts.get(path, -1) + 1
            path = (*path, counts[path])
        return path

    def of(self, path: Path) -> int:
        """The line of a value, or of the nearest thing around it."""
        while path not in self._lines:
            path = path[:-1]
        return self._lines[path]


def _parts(dotted: str) -> list[str]:
    return [part.strip().strip("\"'") for part in _PART.findall(dotted)]
