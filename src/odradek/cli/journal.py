"""`odradek journal`: what the controller did to each partition, and why, from its journal files."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek.cli.output import moment

if TYPE_CHECKING:
    from odradek.controller.journal import Entry

FILE_NAME = "state-change.log"
FOLLOW_S = 0.2
# A line that is longer is shortened for people: one event can name thousands of partitions.
LINE_LENGTH_MAX = 400
KINDS = (
    *("controller", "partition", "replica", "leadership", "reassignment"),
    *("deletion", "request", "response", "failure"),
)


@click.command(epilog="Example: odradek journal --data ./data --partition orders-0 --follow")
@click.option(
    "--data",
    type=click.Path(exists=True, path_type=Path),
    default=Path(),
    show_default="here",
    help="A journal file, a broker's data directory, or that of a whole cluster.",
)
@click.option("--partition", "-p", metavar="TOPIC-N", help="Only what concerns this partition.")
@click.option("--kind", "-k", type=click.Choice(KINDS), multiple=True, help="May be repeated.")
@click.option("--last", "-n", type=click.IntRange(1), help="Only the last N entries.")
@click.option("--follow", "-f", is_flag=True, help="Wait for new entries, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print the entries as JSON lines.")
def journal(
    data: Path,
    partition: str | None,
    kind: tuple[str, ...],
    last: int | None,
    follow: bool,
    as_json: bool,
) -> None:
    """Print the controller's state changes, oldest first, whichever broker was controller."""
    from odradek.wire.topics import TopicPartition

    wanted = None
    if partition is not None:
        if not re.fullmatch(r".+-\d+", partition):
            raise click.UsageError(f"a partition looks like orders-0, not {partition!r}")
        topic, _, number = partition.rpartition("-")
        wanted = TopicPartition(topic, int(number))

    def concerned(entries: "Iterator[Entry]") -> "Iterator[Entry]":
        return (
            entry
            for entry in entries
            if (wanted is None or entry.concerns(wanted)) and (not kind or entry.kind in kind)
        )

    files = dict.fromkeys(journal_files(data), 0)
    if not files:
        raise click.ClickException(_no_journal(data))
    entries = sorted(concerned(_read(files)), key=lambda entry: entry.time_ms)
    if not entries and not follow and (wanted is not None or kind):
        about = " and ".join([*([str(wanted)] if wanted else []), *kind])
        raise click.ClickException(f"the journal has no entry about {about}")
    for entry in entries[-last:] if last else entries:
        _print(entry, as_json)
    try:
        while follow:
            time.sleep(FOLLOW_S)
            files.update({path: 0 for path in journal_files(data) if path not in files})
            for entry in sorted(concerned(_read(files)), key=lambda entry: entry.time_ms):
                _print(entry, as_json)
    except KeyboardInterrupt:
        pass  # how following ends


def journal_files(data: Path) -> list[Path]:
    """The journals of one broker's directory, or of the brokers in a cluster's; rotated ones first.

    Not deeper: what lies below are other clusters, and their entries must not be mixed."""
    if data.is_file():
        return [data]
    names = (f"{FILE_NAME}*", f"*/{FILE_NAME}*")
    found = {path for name in names for path in data.glob(name) if path.is_file()}
    return sorted(found, key=lambda path: (path.parent, -_rotation(path)))


def _no_journal(data: Path) -> str:
    clusters = sorted({path.parent.parent for path in data.glob(f"*/*/{FILE_NAME}")})
    if clusters:
        return f"{data} is above the directories of clusters; name one: --data {clusters[0]}"
    return f"no {FILE_NAME} in {data}; name a data directory with --data"


def _rotation(path: Path) -> int:
    return int(path.suffix[1:]) if path.suffix[1:].isdecimal() else 0


def _read(positions: dict[Path, int]) -> "Iterator[Entry]":
    """The entries after each file's position, which moves on over whole lines."""
    from odradek.controller.journal import read_lines

    for path, position in list(positions.items()):
        try:
            if path.stat().st_size < position:
                position = 0  # rotated: a new file under the old name
            with path.open("rb") as file:
                file.seek(position)
                text = file.read()
        except FileNotFoundError:
            continue  # rotated away between two looks
        whole = text[: text.rfind(b"\n") + 1]
        positions[path] = position + len(whole)
        yield from read_lines(whole.decode(errors="replace").splitlines())


def _print(entry: "Entry", as_json: bool) -> None:
    from odradek.controller.journal import describe, line_of

    if as_json:
        click.echo(line_of(entry), nl=False)
    else:
        line = f"{moment(entry.time_ms)}  {entry.controller_epoch:3}  {describe(entry)}"
        if (left_out := len(line) - LINE_LENGTH_MAX) > 0:
            line = f"{line[:LINE_LENGTH_MAX]}… ({left_out} more characters; see --json)"
        click.echo(line)
