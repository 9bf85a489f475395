"""`odradek store`: back up and restore the metadata of a cluster that keeps it in SQLite."""

from pathlib import Path

import click

from odradek.cli.broker import STORE_FILE
from odradek.cli.output import examples

data_option = click.option(
    "--data",
    type=click.Path(path_type=Path),
    required=True,
    help="The cluster's data directory, or its metadata file.",
)


@click.group(
    epilog=examples(
        "odradek store backup --data ./data metadata.backup",
        "odradek store restore --data ./data metadata.backup",
    )
)
def store() -> None:
    """Back up and restore a cluster's metadata: topics, settings, leaders.

    Records are not copied. Back up a cluster on ZooKeeper with ZooKeeper's own
    tools.
    """


@store.command(epilog=examples("odradek store backup --data ./data metadata.backup"))
@data_option
@click.argument("target", type=click.Path(path_type=Path))
def backup(data: Path, target: Path) -> None:
    """Copy the metadata to TARGET, a new file. Brokers may run meanwhile."""
    from odradek.store.api import StoreError
    from odradek.store.backup import backup as copy

    try:
        copy(_file(data), target)
    except (StoreError, OSError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{target}: {target.stat().st_size:,} bytes")


@store.command(epilog=examples("odradek store restore --data ./data metadata.backup"))
@data_option
@click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def restore(data: Path, source: Path, yes: bool) -> None:
    """Replace the metadata with the backup SOURCE. All brokers must be stopped.

    Changes made since the backup are lost: topics created since have no metadata, and a
    replica that has left the ISR since may lead, so that newer records are truncated.
    """
    from odradek.store.api import StoreError
    from odradek.store.backup import restore as put_back

    place = _file(data)
    if not yes:
        click.confirm(f"Replace {place}? Changes since the backup are lost.", abort=True)
    try:
        former = put_back(source, place)
    except (StoreError, OSError) as error:
        raise click.ClickException(str(error)) from None
    if former is not None:
        click.echo(f"the metadata before this is kept in {former}")
    click.echo(f"{place} restored from {source}")


def _file(data: Path) -> Path:
    """What does not exist is a directory, unless it is called as the file in one is."""
    is_file = data.is_file() or data.name == STORE_FILE
    return data if is_file and not data.is_dir() else data / STORE_FILE
