"""The demo on a terminal: the stream, the cluster, the pipeline and what happened, on one screen.

`draw` is a function of what is known and of the size of the terminal. It fills no more than that:
a small terminal loses the older events first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.cli.output import size
from odradek.cli.pipeline_view import progress_table

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    from odradek.spark.pipeline.progress import QueryProgress

WIDTH_MAX = 120
BARS = " ▁▂▃▄▅▆▇█"
EVENTS_MAX = 20
RATE_WIDTH = 8
# A batch lands at once; over so many looks it is a rate.
RECENT = 10


@dataclass(frozen=True, slots=True)
class BrokerLine:
    """A broker as the cluster sees it; `rate` is the growth of its logs in bytes a second."""

    id: int
    address: str
    state: str
    leads: int = 0
    in_sync: int = 0
    holds: int = 0
    size_bytes: int | None = None
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class TopicLine:
    """A topic: the fewest replicas in sync of any partition, and what is in it."""

    name: str
    partitions: int
    isr: str
    is_well: bool
    records: int | None = None
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """All that is known at one moment."""

    stage: str = "starting"
    clock: str = ""
    sent: int = 0
    acknowledged: int = 0
    landed: int = 0
    dead: int = 0
    sent_rates: Sequence[float] = ()
    landed_rates: Sequence[float] = ()
    brokers: Sequence[BrokerLine] = ()
    topics: Sequence[TopicLine] = ()
    queries: "Sequence[QueryProgress]" = ()
    # Of the console, where there is one.
    link: str | None = None
    # When, what, and the colour of it.
    events: Sequence[tuple[str, str, str]] = ()


def minutes(seconds: float) -> str:
    """A clock: 1:05."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def draw(scene: Scene, width: int, height: int) -> "Group":
    """The scene on a terminal of this size."""
    from rich.console import Group
    from rich.text import Text

    width = min(width, WIDTH_MAX)
    parts: list[RenderableType] = [
        _panel("odradek", _stream(scene, width - 4), width, _right_title(scene)),
        _panel("cluster", _cluster(scene), width, Text(scene.link) if scene.link else None),
        _panel("pipeline", _pipeline(scene), width),
    ]
    # Two borders each, and what is inside them.
    used = 3 * 2 + 2 + (2 + len(scene.brokers) + len(scene.topics) + 1) + max(1, _rows(scene))
    room = max(0, min(EVENTS_MAX, height - used - 1))
    shown = list(scene.events)[-room:] if room else []
    parts += [
        Text.assemble(f"  {at:>5}  ", (text, style), no_wrap=True, overflow="ellipsis")
        for at, text, style in shown
    ]
    return Group(*parts)


def _rows(scene: Scene) -> int:
    return len(scene.queries) + 1 if scene.queries else 1


def _right_title(scene: Scene) -> "Text":
    from rich.text import Text

    return Text.assemble((scene.stage, "bold green"), f"  {scene.clock}")


def _panel(
    title: str, inside: "RenderableType", width: int, right: "Text | None" = None
) -> "Panel":
    from rich.box import ROUNDED
    from rich.panel import Panel
    from rich.text import Text

    heading = Text(title, "bold cyan")
    if right is not None:
        heading = Text.assemble(
            heading,
            " ",
            ("─" * max(1, width - 8 - heading.cell_len - right.cell_len), "dim"),
            " ",
            right,
        )
    return Panel(
        inside, title=heading, title_align="left", box=ROUNDED, width=width, border_style="dim"
    )


def _grid(*columns: tuple[str, str]) -> "Table":
    """A table without lines; each column is its heading and how it is justified."""
    from rich.table import Table

    table = Table(box=None, expand=True, pad_edge=False, header_style="dim", padding=(0, 1, 0, 0))
    for heading, justify in columns:
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]  # a Literal
    return table


def _stream(scene: Scene, width: int) -> "Table":
    from rich.table import Table
    from rich.text import Text

    bars = max(8, width - 54)
    table = Table.grid(expand=True, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, ratio=1)
    table.add_column(no_wrap=True, justify="right", width=bars)
    table.add_column(no_wrap=True, justify="right", width=RATE_WIDTH)
    under_way = scene.sent - scene.acknowledged
    rates = (scene.sent_rates, scene.landed_rates)
    texts = (
        Text.assemble((f"{scene.sent:,}", "bold"), f" sent, {under_way:,} under way"),
        Text.assemble(
            (f"{scene.landed:,}", "bold"),
            " in the table, ",
            (f"{scene.dead:,} dead letters", "yellow" if scene.dead else ""),
        ),
    )
    for name, text, series in zip(("clicks", "landed"), texts, rates, strict=True):
        recent = series[-RECENT:]
        rate = f"{sum(recent) / len(recent):,.0f}/s" if recent else ""
        table.add_row(Text(name, "dim"), text, Text(sparkline(series, bars), "cyan"), rate)
    return table


def sparkline(series: Sequence[float], width: int) -> str:
    """The last of a series as bars, the highest of them full."""
    shown = list(series)[-width:]
    top = max(shown, default=0.0)
    if top <= 0:
        return ""
    steps = len(BARS) - 1
    return "".join(BARS[0 if value <= 0 else max(1, round(value / top * steps))] for value in shown)


def _cluster(scene: Scene) -> "RenderableType":
    from rich.console import Group

    brokers = _grid(
        ("broker", "left"),
        ("address", "left"),
        ("state", "left"),
        ("leads", "right"),
        ("in sync", "right"),
        ("size", "right"),
        ("kB/s", "right"),
    )
    for broker in scene.brokers:
        brokers.add_row(*_broker_cells(broker))
    topics = _grid(
        ("topic", "left"),
        ("partitions", "right"),
        ("ISR", "right"),
        ("records", "right"),
        ("records/s", "right"),
    )
    for topic in scene.topics:
        topics.add_row(
            topic.name,
            str(topic.partitions),
            topic.isr if topic.is_well else f"[yellow]{topic.isr}[/yellow]",
            "" if topic.records is None else f"{topic.records:,}",
            "" if topic.rate is None else f"{topic.rate:,.0f}",
        )
    return Group(brokers, topics)


def _broker_cells(broker: BrokerLine) -> list[str]:
    if broker.state not in ("up", "controller"):
        colour = "red" if broker.state == "down" else "yellow"
        return [f"[{colour}]○ {broker.id}[/]", broker.address, f"[bold {colour}]{broker.state}[/]"]
    in_sync = f"{broker.in_sync}/{broker.holds}"
    return [
        f"[green]●[/green] {broker.id}",
        broker.address,
        f"[bold]{broker.state}[/]" if broker.state == "controller" else broker.state,
        str(broker.leads),
        in_sync if broker.in_sync == broker.holds else f"[yellow]{in_sync}[/yellow]",
        "" if broker.size_bytes is None else size(broker.size_bytes),
        "" if broker.rate is None else f"{broker.rate / 1e3:,.0f}",
    ]


def _pipeline(scene: Scene) -> "RenderableType":
    from rich.text import Text

    if not scene.queries:
        return Text("Spark is starting", "dim")
    return progress_table(scene.queries)
