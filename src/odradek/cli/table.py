"""`odradek table`: look at Delta tables and keep them in order, without Spark."""

import functools
import re
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.output import examples, json_option, moment, print_json, print_table, size

if TYPE_CHECKING:
    from odradek.spark.tables.location import Location
    from odradek.spark.tables.table import Table

MEGABYTE = 1024 * 1024
INSTALL = 'tables need more than a broker does: pip install "odradek[table]"'
ROWS_SHOWN = 20
PATH = click.argument("path")


def _settings(
    context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    for value in values:
        if not re.fullmatch(r"[^=]+=.*", value):
            raise click.BadParameter(f"{value!r} is not of the form NAME=VALUE", context, option)
    return dict(value.split("=", 1) for value in values)


STORAGE = click.option(
    "--storage",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_settings,
    help="A setting of the store, for s3://.",
)


def compaction_options(command: Callable[..., None]) -> Callable[..., None]:
    """The size of a file to aim at, and how few are left alone."""
    least = click.option(
        "--min-files",
        type=click.IntRange(min=2),
        default=8,
        show_default=True,
        help="Rewrite no fewer than this.",
    )
    target = click.option(
        "--target-mb",
        type=click.IntRange(min=1),
        default=128,
        show_default=True,
        help="The size of a file to aim at.",
    )
    return target(least(command))


@click.group(epilog=examples("odradek table info lake/clicks"))
def table() -> None:
    """Inspect and maintain the Delta tables that pipelines write to."""


def _verb(command: Callable[..., None]) -> Callable[..., None]:
    """A verb over a table's path: what is wrong is one line."""

    @PATH
    @STORAGE
    @json_option
    @functools.wraps(command)
    def run(path: str, storage: dict[str, str], as_json: bool, **options: Any) -> None:
        from odradek.spark.tables.location import Location

        try:
            import pyarrow  # noqa: F401  # what data files are read with
            from deltalake.exceptions import DeltaError
        except ModuleNotFoundError:
            raise click.ClickException(INSTALL) from None
        from odradek.spark.errors import TableError

        try:
            command(Location.of(path, storage), as_json, **options)
        except (TableError, DeltaError, OSError, ValueError) as error:
            # The library's own errors: a disk that is full, a directory that may not be written.
            raise click.ClickException(str(error)) from None

    return run


def _writable(location: "Location") -> "Table":
    """The table, mended if a power failure left something to mend."""
    from odradek.spark.tables.table import Table, mend

    if (said := mend(location)) is not None:
        click.echo(said, err=True)
    return Table(location)


@table.command(epilog=examples("odradek table info lake/clicks --json"))
@_verb
def info(location: "Location", as_json: bool) -> None:
    """Show columns, rows, files, versions, and the pipelines that write to it."""
    from odradek.spark.tables.inspection import info as describe
    from odradek.spark.tables.table import Table

    found = describe(Table(location))
    if as_json:
        print_json(asdict(found))
        return
    features = f" ({', '.join(found.features)})" if found.features else ""
    lines = {
        "table": found.path,
        "version": f"{found.version}; from {found.oldest_version} on they can be read",
        "protocol": f"reader {found.reader}, writer {found.writer}{features}",
        "rows": f"{found.rows:,}",
        "files": f"{found.files:,} of {size(found.bytes)}, {found.small_files:,} of them small",
        "partitions": ", ".join(found.partition_by) or "none",
        **{f"column {name}": kind for name, kind in found.columns.items()},
        **{f"writer {name}": f"batch {number}" for name, number in found.writers.items()},
        **found.properties,
    }
    width = max(map(len, lines))
    for name, text in lines.items():
        click.echo(f"{name.ljust(width)}  {text}")


@table.command(epilog=examples("odradek table history lake/clicks --limit 5"))
@click.option("--limit", type=click.IntRange(min=1), help="Only the newest N versions.")
@_verb
def history(location: "Location", as_json: bool, limit: int | None) -> None:
    """Show what each version did: rows, pipeline, batch, and the offsets it holds."""
    from odradek.spark.tables.inspection import history as versions
    from odradek.spark.tables.table import Table

    found = versions(Table(location), limit)
    if as_json:
        print_json([{**asdict(one), "at": one.at.isoformat()} for one in found])
        return
    print_table(
        ("version", "time", "operation", "rows", "pipeline", "sink", "batch", "offsets"),
        [
            (
                one.version,
                moment(int(one.at.timestamp() * 1000)),
                one.operation,
                one.rows,
                *(one.notes.get(name) for name in ("pipeline", "sink", "batch", "offsets")),
            )
            for one in found
        ],
    )


@table.command(epilog=examples("odradek table show lake/clicks --version 12 --limit 5"))
@click.option("--version", type=int, help="As it was in this version.")
@click.option("--at", metavar="TIME", help="As it was at this time, such as 2026-01-31T12:00:00Z.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=ROWS_SHOWN,
    show_default=True,
    help="Print at most so many rows.",
)
@_verb
def show(
    location: "Location", as_json: bool, version: int | None, at: str | None, limit: int
) -> None:
    """Print rows of the table, of the current or an earlier version."""
    import json

    from odradek.spark.tables.inspection import at_version

    if version is not None and at is not None:
        raise click.UsageError("--version and --at exclude each other")
    found = at_version(location, version, at)
    rows = _rows(found, limit)
    if as_json:
        print_json([json.loads(json.dumps(row, default=str)) for row in rows])
        return
    names = [field.name for field in found.delta.schema().fields]
    print_table(names, [[row[name] for name in names] for row in rows])


def _rows(table: "Table", limit: int) -> list[dict[str, Any]]:
    import pyarrow as pa

    from odradek.spark.tables.data import read_rows

    schema = pa.schema(table.delta.schema().to_arrow())
    rows: list[dict[str, Any]] = []
    for file in table.data_files():
        for batch in read_rows(table.location.files(), file, schema):
            rows += batch.slice(0, limit - len(rows)).to_pylist()
            if len(rows) >= limit:
                return rows
    return rows


@table.command(epilog=examples("odradek table compact lake/clicks --sort-by user"))
@compaction_options
@click.option("--sort-by", multiple=True, metavar="COLUMN", help="Sort within each file.")
@_verb
def compact(
    location: "Location", as_json: bool, target_mb: int, min_files: int, sort_by: tuple[str, ...]
) -> None:
    """Rewrite many small files as few, while pipelines land."""
    table = _writable(location)
    before = table.data_files()
    compacted(table, target_mb, min_files, sort_by)
    table.refresh()
    after = table.data_files()
    if as_json:
        print_json(
            {
                "files_before": len(before),
                "files_after": len(after),
                "bytes_before": sum(one.size_bytes for one in before),
                "bytes_after": sum(one.size_bytes for one in after),
            }
        )
        return
    click.echo(f"{location.uri}: {amount(before)} became {amount(after)}")


def compacted(table: "Table", target_mb: int, min_files: int, sort_by: tuple[str, ...] = ()) -> int:
    """How many files were rewritten."""
    from odradek.spark.tables.compaction import compact

    return sum(len(done.files) for done in compact(table, target_mb * MEGABYTE, min_files, sort_by))


def amount(files: list[Any]) -> str:
    """So many files of so many bytes."""
    return f"{len(files):,} files of {size(sum(file.size_bytes for file in files))}"


@table.command(epilog=examples("odradek table vacuum lake/clicks --dry-run"))
@click.option("--older-than", metavar="TIME", help='Such as "14 days"; else the history.')
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@_verb
def vacuum(location: "Location", as_json: bool, older_than: str | None, dry_run: bool) -> None:
    """Remove the files that no version in the history needs."""
    from odradek.spark.tables.retention import seconds
    from odradek.spark.tables.retention import vacuum as remove

    table = _writable(location)
    removed = remove(table, None if older_than is None else seconds(older_than), dry_run=dry_run)
    if as_json:
        print_json({"removed": removed, "dry_run": dry_run})
        return
    click.echo(f"{location.uri}: {len(removed):,} files {'to remove' if dry_run else 'removed'}")


@table.command(epilog=examples("odradek table restore lake/clicks --version 12"))
@click.option("--version", type=int, required=True, help="The version to go back to.")
@_verb
def restore(location: "Location", as_json: bool, version: int) -> None:
    """Restore an old version, as a new one.

    Batches that were landed since stay counted as landed: a pipeline continues after them.
    """
    from odradek.spark.tables.inspection import restore as go_back

    made = go_back(_writable(location), version)
    if as_json:
        print_json({"version": made, "like": version})
        return
    click.echo(f"{location.uri}: version {made} is like version {version}")


@table.command(epilog=examples("odradek table check lake/clicks"))
@_verb
def check(location: "Location", as_json: bool) -> None:
    """Check that the log is complete and every file exists. Exits with 1 if not."""
    from odradek.spark.tables.inspection import check as look

    found = look(location)
    if as_json:
        print_json(asdict(found))
    else:
        for fault in found.faults:
            click.echo(fault)
        if not found.faults:
            click.echo(
                f"{location.uri}: version {found.version}, {found.files:,} files and "
                f"{found.rows:,} rows are there; {found.unreferenced:,} files for vacuum"
            )
    if found.faults:
        raise click.exceptions.Exit(1)
