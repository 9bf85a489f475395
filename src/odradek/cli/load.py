"""`odradek load`: who bears what now."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.output import Listing, examples, json_option, plural, print_json, progress, size
from odradek.cli.session import bootstrap_option, with_cluster
from odradek.wire.topics import TELEMETRY_TOPIC

if TYPE_CHECKING:
    from odradek.balance.load import LoadModel
    from odradek.balance.poll import Estimator
    from odradek.client import Blocking

BY = ("cpu", "in", "out", "disk", "messages")
MINUTES = 60
SHOWN = 10
POLL_S = 60.0
# A broker that has published nothing for so long does not.
SILENT_MS = 120_000

telemetry_topic = click.option(
    "--telemetry-topic",
    default=TELEMETRY_TOPIC,
    show_default=True,
    help="Where brokers publish (odradek.telemetry.topic).",
)


@click.group(
    invoke_without_command=True,
    epilog=examples(
        "odradek load",
        "odradek load --by out --partitions",
        "odradek load --topic orders --json",
    ),
)
@click.option("--topic", help="The partitions of one topic.")
@click.option("--partitions", is_flag=True, help="The hottest partitions of all topics.")
@click.option(
    "--by",
    type=click.Choice(BY),
    default="in",
    show_default=True,
    help="What to rank by: cores, bytes in or out a second, bytes on disk, records a second.",
)
@click.option(
    "--minutes",
    type=click.IntRange(1),
    default=MINUTES,
    show_default=True,
    help="How far to look back. The busiest tenth of that time counts, at least three windows of "
    "five minutes.",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=SHOWN,
    show_default=True,
    help="Print at most so many rows.",
)
@telemetry_topic
@json_option
@with_cluster
def load(
    cluster: "Blocking",
    topic: str | None,
    partitions: bool,
    by: str,
    minutes: int,
    limit: int,
    telemetry_topic: str,
    as_json: bool,
) -> None:
    """Show the current load: the hottest brokers, topics and partitions.

    It is computed from what brokers publish every few seconds. For brokers that publish nothing
    it is estimated, and the first line says for how many.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    from odradek.balance.report import by_broker, by_partition, by_topic

    model, skipped = _model(cluster, minutes, telemetry_topic)
    if topic is not None and topic not in model.replicas["topic"].to_pylist():
        raise click.ClickException(f"there is no topic {topic}; see `odradek topics list`")
    lists = {
        "brokers": by_broker(model, by),
        "topics": by_topic(model, by),
        "partitions": by_partition(model, by, topic),
    }
    if as_json:
        print_json({**_about(model), "skipped_frames": skipped, **lists})
        return
    click.echo(_headline(model, minutes))
    if skipped:
        click.echo(f"{plural(skipped, 'record')} of {telemetry_topic} could not be read")
    shown = ["partitions"] if partitions or topic is not None else ["brokers", "topics"]
    for name in shown:
        click.echo()
        rows = lists[name]
        Listing(rows if name == "brokers" else rows[:limit], _COLUMNS[name] | _AMOUNTS).show(False)
        if name != "brokers" and len(rows) > limit:
            click.echo(f"and {len(rows) - limit} more: --limit")


@load.command(
    epilog=examples("odradek load poll", "odradek load poll --brokers 4,5 --interval 30 --count 3")
)
@click.option(
    "--interval",
    type=click.FloatRange(0, min_open=True),
    default=POLL_S,
    show_default=True,
    metavar="SECONDS",
    help="Time between two samples.",
)
@click.option("--count", type=click.IntRange(1), help="Stop after so many samples with frames.")
@click.option(
    "--brokers",
    metavar="ID[,...]",
    help="Estimate these, in place of those that published nothing in the last minutes.",
)
@telemetry_topic
@with_cluster
def poll(
    cluster: "Blocking",
    interval: float,
    count: int | None,
    brokers: str | None,
    telemetry_topic: str,
) -> None:
    """Estimate the load of brokers that publish nothing, until Ctrl-C.

    For Apache Kafka's brokers, and ours without telemetry. Sizes, offsets and committed offsets of
    groups are sampled, and what they grew by is published in the brokers' names, marked as
    estimated. Processor time stays unknown.
    """
    from odradek.balance.poll import Estimator

    try:
        chosen = None if brokers is None else {int(each) for each in brokers.split(",")}
    except ValueError:
        raise click.UsageError(f"--brokers: no ids, separated by commas: {brokers}") from None
    estimator, done = Estimator(_now_ms()), 0
    while count is None or done < count:
        written = cluster.run(_poll_once(cluster, estimator, chosen, telemetry_topic))
        if written is None:
            click.echo(f"first sample taken, the next in {interval:g} s")
        else:
            done += 1
            click.echo(
                f"{time.strftime('%H:%M:%S')} estimated {plural(written, 'broker')}"
                if written
                else f"{time.strftime('%H:%M:%S')} all brokers publish for themselves"
            )
        if count is None or done < count:
            time.sleep(interval)


@load.command(
    epilog=examples(
        "odradek load pipeline --path /lake/load > load.toml", "odradek pipeline run load.toml"
    )
)
@click.option("--path", default="load", show_default=True, help="Where the tables are to be.")
@bootstrap_option("Where Spark finds the cluster.")
@telemetry_topic
def pipeline(path: str, bootstrap_server: str, telemetry_topic: str) -> None:
    """Print a Spark pipeline that lands windows of load in a lake.

    Two Delta tables of five-minute sums, partition_windows and broker_windows: a history of load
    that outlives the six hours of the telemetry topic.
    """
    from odradek.balance.pipeline import pipeline_text

    click.echo(pipeline_text(bootstrap_server, telemetry_topic, path), nl=False)


async def _poll_once(
    cluster: "Blocking", estimator: "Estimator", chosen: set[int] | None, topic: str
) -> int | None:
    """How many brokers were estimated; None for the first sample, which has nothing before it."""
    from odradek.balance.cluster import read_frames, speaking, write_frames
    from odradek.balance.poll import take_sample

    sample = await take_sample(cluster.admin, cluster.groups, _now_ms())
    values = await read_frames(cluster.client, sample.at_ms - SILENT_MS, topic)
    silent = sample.directories.keys() - speaking(values) if chosen is None else chosen
    is_first = estimator.is_new
    frames = estimator.frames(sample, silent)
    await write_frames(cluster.client, frames, topic)
    return None if is_first else len(frames)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _model(cluster: "Blocking", minutes: int, topic: str) -> "tuple[LoadModel, int]":
    """The load of what is there now, and how many frames could not be read."""
    from odradek.balance.cluster import read_frames, read_placement
    from odradek.balance.frames import decode_frames
    from odradek.balance.load import load_table

    since_ms = _now_ms() - minutes * 60_000
    with progress(unit_is_bytes=False) as bar:
        task = bar.add_task("reading telemetry", total=None)

        def show_progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        values = cluster.run(read_frames(cluster.client, since_ms, topic, show_progress))
        bar.update(task, description="asking brokers for sizes", total=None)
        placement, brokers = cluster.run(read_placement(cluster.admin))
    decoded = decode_frames(values)
    return load_table(decoded, placement, brokers, growth_h=0), decoded.skipped


def _about(model: "LoadModel") -> dict[str, object]:
    from odradek.balance.report import sources

    return {
        "as_of_ms": model.as_of_ms,
        "coverage": round(model.coverage, 4),
        "sources": sources(model),
    }


def _headline(model: "LoadModel", minutes: int) -> str:
    brokers = model.brokers["source"].to_pylist()
    if not model.as_of_ms:
        return (
            f"load: no telemetry in the last {minutes} minutes, only sizes are known; "
            "see odradek.telemetry.interval.ms, or run `odradek load poll`"
        )
    return (
        f"load: the busiest windows of {minutes} minutes, up to {_clock(model.as_of_ms)}; "
        f"of {plural(len(brokers), 'broker')} {brokers.count('measured')} measured, "
        f"{brokers.count('estimated')} estimated; "
        f"{model.coverage:.1%} of {plural(model.replicas.num_rows, 'replica')} covered"
    )


def _clock(ms: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(ms / 1000))


def _rate(name: str) -> Callable[[Any], str]:
    return lambda row: f"{size(row[name])}/s"


_AMOUNTS: dict[str, Any] = {
    "cpu": lambda row: f"{row['cpu']:.2f}",
    "in": _rate("in"),
    "out": _rate("out"),
    "disk": lambda row: size(row["disk"]),
    "records/s": "messages",
}
_COLUMNS: dict[str, dict[str, Any]] = {
    "brokers": {
        "broker": "broker",
        "share": lambda row: f"{row['share']:.2f}",
        "source": "source",
        "leaders": "leaders",
        "replicas": "replicas",
    },
    "topics": {"topic": "topic", "leaders": "leaders", "replicas": "replicas"},
    "partitions": {
        "topic": "topic",
        "partition": "partition",
        "leader": "leader",
        "source": "source",
    },
}
