"""The `odradek` command: one table of verbs, each imported only when it is used.

A broker must be up in a quarter of a second, so nothing is imported here but click, and a verb's
module is not touched to list it: the table has its line of help.
"""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import click

__all__ = ["main"]

# What the extra odradek[spark] installs.
SPARK_MODULES = frozenset({"deltalake", "numba", "numpy", "pandas", "pyarrow", "pyspark"})
IMPORTS_IN_THREADS = frozenset({"demo"})
HELP = frozenset({"-h", "--help"})
# What shells report of a program that Ctrl-C has ended.
INTERRUPTED = 130


class Verb(NamedTuple):
    """Where a command is, and what `--help` says about it."""

    module: str
    function: str
    help: str


VERBS: Mapping[str, Verb] = {
    "up": Verb("odradek.cli.up", "up", "Run a whole cluster on this machine."),
    "broker": Verb("odradek.cli.broker", "broker", "Run one broker."),
    "status": Verb("odradek.cli.status", "status", "Report what is wrong with the cluster."),
    "top": Verb("odradek.cli.top", "top", "Show current load, request times and lag."),
    "console": Verb("odradek.cli.console", "console", "Serve a web console for a cluster."),
    "metrics": Verb("odradek.cli.metrics", "metrics", "List exported metrics; write dashboards."),
    "topics": Verb("odradek.cli.topics", "topics", "Create, list, alter and delete topics."),
    "produce": Verb("odradek.cli.produce", "produce", "Write lines to a topic."),
    "consume": Verb("odradek.cli.consume", "consume", "Print the records of a topic."),
    "groups": Verb("odradek.cli.groups", "groups", "Show, reset and delete consumer groups."),
    "transactions": Verb(
        "odradek.cli.transactions", "transactions", "Show transactions; abort hanging ones."
    ),
    "configs": Verb("odradek.cli.configs", "configs", "Show and alter topic and broker settings."),
    "quotas": Verb("odradek.cli.quotas", "quotas", "Show and set client quotas."),
    "security": Verb("odradek.cli.security", "security", "Create certificates and first users."),
    "users": Verb("odradek.cli.users", "users", "Manage users that log in with SCRAM."),
    "tokens": Verb("odradek.cli.tokens", "tokens", "Manage delegation tokens."),
    "acls": Verb("odradek.cli.acls", "acls", "Manage permissions."),
    "load": Verb("odradek.cli.load", "load", "Show the load of brokers and partitions."),
    "reassign": Verb("odradek.cli.reassign", "reassign", "Move partitions between brokers."),
    "rebalance": Verb("odradek.cli.rebalance_run", "rebalance", "Balance brokers by load."),
    "brokers": Verb("odradek.cli.brokers", "brokers", "Drain or fill brokers."),
    "elect": Verb("odradek.cli.elect", "elect", "Elect leaders."),
    "store": Verb("odradek.cli.store", "store", "Back up and restore the metadata."),
    "journal": Verb("odradek.cli.journal", "journal", "Print what the controller did, and why."),
    "pipeline": Verb("odradek.cli.pipeline", "pipeline", "Run Spark pipelines on topics."),
    "table": Verb("odradek.cli.table", "table", "Inspect and maintain Delta tables."),
    "demo": Verb(
        "odradek.demo.command", "demo", "Run a cluster, a live stream, a pipeline, an audit."
    ),
    "zookeeper": Verb("odradek.cli.zookeeper", "zookeeper", "Run a ZooKeeper server."),
    "simulate": Verb("odradek.cli.simulate", "simulate", "Run a simulated cluster under faults."),
    "completion": Verb("odradek.cli.completion", "completion", "Print completions for a shell."),
}


def _needs_spark(module: str | None) -> click.ClickException:
    return click.ClickException(
        f'this command needs Spark ({module} is not installed): pip install "odradek[spark]"'
    )


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

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = arguments[0] if arguments else ""
        if name and not name.startswith("-") and name not in VERBS:
            from difflib import get_close_matches

            near = get_close_matches(name, list(VERBS), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            context.fail(f"No such command {name!r}.{hint}")
        if name in IMPORTS_IN_THREADS and not HELP.intersection(arguments):
            # Found out beforehand: of two threads that import what is missing, one sees only a
            # module that is half there.
            missing = [module for module in sorted(SPARK_MODULES) if find_spec(module) is None]
            if missing:
                raise _needs_spark(missing[0])
        return super().resolve_command(context, arguments)

    def invoke(self, context: click.Context) -> object:
        try:
            result: object = super().invoke(context)
            return result
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in SPARK_MODULES:
                raise
            raise _needs_spark(error.name) from None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="odradek")
def main() -> None:
    """A Kafka-compatible replicated log.

    \b
    odradek up --brokers 3
    odradek topics create greetings --partitions 3
    echo hello | odradek produce greetings
    odradek consume greetings

    Each command has its own --help with examples. The cluster is at localhost:9092 unless
    --bootstrap-server or ODRADEK_BOOTSTRAP says otherwise.
    """
