"""What commands print: tables for people, JSON for programs, amounts with their units.

On a terminal a table fits its width. Into a pipe or file it is plain text, columns aligned, nothing
cut off and nothing coloured.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from odradek.cli.log_lines import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?(?:/s)?", re.IGNORECASE)
_FACTORS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def examples(*commands: str) -> str:
    """The end of a command's help: examples, each on a line that is never broken."""
    title = "Example:" if len(commands) == 1 else "Examples:"
    return "\n".join(["\b", title, *(f"  {command}" for command in commands)])


def plural(count: int, noun: str) -> str:
    """1 partition, 2 partitions."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table; columns in which all is a number stand to the right."""
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        console().print(table(headings, cells))
        return
    widths = [
        max(len(heading), *(len(row[column]) for row in cells), 0)
        for column, heading in enumerate(headings)
    ]
    rights = _numeric(headings, cells)
    for row in [[heading.upper() for heading in headings], *cells]:
        line = "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, rights, strict=True)
        )
        click.echo(line.rstrip())


Row = Mapping[str, object]
# A column shows a field of the row, or what a function makes of the row.
Column = str | Callable[[Row], object]


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows as a program reads them, and the columns a person sees of them.

    Rows are what `--json` prints; `columns` has for each heading the field of a row to show, or a
    function of the row. Lists of numbers are shown as 1,2,3, and null as nothing.
    """

    rows: Sequence[Row]
    columns: Mapping[str, Column]

    def show(self, as_json: bool, *, empty: str = "") -> None:
        """Print JSON or a table; `empty` in place of a table without rows."""
        if as_json:
            print_json(self.rows)
        elif not self.rows and empty:
            click.echo(empty)
        else:
            print_table(list(self.columns), self.cells())

    def cells(self) -> list[list[str]]:
        return [[_cell(row, column) for column in self.columns.values()] for row in self.rows]


def _cell(row: Row, column: Column) -> str:
    value = row[column] if isinstance(column, str) else column(row)
    if value is None:
        return ""
    # Names of groups and clients are theirs to choose, and may hold escape sequences.
    return one_line(numbers(value) if isinstance(value, list | tuple) else str(value))


def table(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading, right in zip(headings, _numeric(headings, cells), strict=True):
        drawn.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in cells:
        drawn.add_row(*map(Text, row))
    return drawn


def _numeric(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> list[bool]:
    return [
        bool(cells) and all(not row[column] or row[column][0].isdigit() for row in cells)
        for column in range(len(headings))
    ]


def console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def progress(*, unit_is_bytes: bool = True) -> "Progress":
    """A progress bar on standard error; nothing at all where that is no terminal."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    amounts = (
        (DownloadColumn(), TransferSpeedColumn()) if unit_is_bytes else (MofNCompleteColumn(),)
    )
    shown = console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *amounts,
        TimeRemainingColumn(),
        console=shown,
        transient=True,
        disable=not shown.is_terminal,
    )


def numbers(values: Iterable[object]) -> str:
    """Broker ids as one cell: 1,2,3."""
    return ",".join(map(str, values))


def size(byte_count: float) -> str:
    """An amount of bytes in the units people type: 1.5 MB is 1,500,000."""
    amount, units = float(byte_count), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 1000 and len(units) > 1:
        amount /= 1000
        units.pop(0)
    return f"{amount:.0f} {units[0]}" if units[0] == "B" else f"{amount:.1f} {units[0]}"


def duration(seconds: float) -> str:
    """A time span in the two units that matter: 2 min 5 s."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def moment(timestamp_ms: int) -> str:
    """A timestamp as people write it, in UTC, to the millisecond."""
    at = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_size(text: str) -> int:
    """10MB, 512KiB/s, 1000000: a number of bytes. Raises ValueError."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"an amount looks like 10MB or 1048576, not {text!r}")
    number, unit, binary = found.groups()
    base = 1024 if binary else 1000
    return int(float(number) * base ** _FACTORS[unit.lower()])
