"""The `odradek` command: one table of verbs, each imported only when it is used.

A broker must be up in a quarter of a second, so nothing is imported here but click, and a verb's
module is not touched to list it: the table has its line of help.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

import click

__all__ = ["main"]


class Verb(NamedTuple):
    """Where a command is, and what `--help` says about it."""

    module: str
    function: str
    help: str


VERBS: Mapping[str, Verb] = {
    "broker": Verb("odradek.cli.broker", "broker", "Run one broker."),
}


class Verbs(click.Group):
    """A group whose commands are looked up in the table."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        verb = VERBS.get(name)
        if verb is None:
            return None
        command: click.Command = getattr(import_module(verb.module), verb.function)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="odradek")
def main() -> None:
    """A Kafka-compatible replicated log.

    \b
    odradek broker --id 1 --data /var/lib/odradek
    """
