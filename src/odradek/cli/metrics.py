"""`odradek metrics`: what a broker exports, and the files for Prometheus and Grafana."""

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.output import examples, json_option, print_json, print_table

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from odradek.broker.exposition import Metric


@click.command(epilog=examples("odradek metrics", "odradek metrics --files ./observability"))
@click.option(
    "--files",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the dashboard, alert and recording rules and example configurations there instead.",
)
@json_option
def metrics(files: Path | None, as_json: bool) -> None:
    """List every metric that brokers export at /metrics, with its type and labels."""
    if files is not None:
        try:
            _write_files(files)
        except OSError as error:
            raise click.ClickException(f"{error.filename}: {error.strerror}") from None
        return
    from odradek.broker.metrics import METRICS, PARTITION_METRICS

    table: list[Metric[Any]] = [*METRICS, *PARTITION_METRICS]
    if as_json:
        print_json(
            [
                {
                    "name": each.name,
                    "type": each.type.value,
                    "labels": list(each.labels),
                    "help": each.help,
                }
                for each in table
            ]
        )
    else:
        rows = [(each.name, each.type.value, ",".join(each.labels), each.help) for each in table]
        print_table(("name", "type", "labels", "help"), rows)


def _write_files(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for shipped in sorted(_shipped(), key=lambda each: each.name):
        (directory / shipped.name).write_text(shipped.read_text())
        click.echo(directory / shipped.name)


def _shipped() -> "list[Traversable]":
    folder = resources.files("odradek") / "observability"
    return [each for each in folder.iterdir() if each.name.endswith((".yml", ".json"))]
