"""The queries of a pipeline as a table for a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.cli.output import size

if TYPE_CHECKING:
    from rich.table import Table

    from odradek.spark.pipeline.progress import QueryProgress

COLUMNS = ("query", "batch", "in/s", "out/s", "rows out", "lag at batch", "state")


def progress_table(queries: "Sequence[QueryProgress]") -> "Table":
    """One line each: its last batch, its totals, how far behind it was when that batch was planned,
    and what it remembers."""
    from rich.table import Table

    table = Table(box=None, expand=True, pad_edge=False, header_style="dim", padding=(0, 1, 0, 0))
    for heading in COLUMNS:
        table.add_column(heading, justify="left" if heading == "query" else "right", no_wrap=True)
    for query in queries:
        alarming = query.is_dead_letters and query.rows_out
        name = f"[yellow]{query.name}[/yellow]" if alarming else query.name
        if query.batch < 0:
            table.add_row(name, "[dim]starting[/dim]")
            continue
        state = f"{query.state_rows:,} ({size(query.state_bytes)})" if query.state_rows else ""
        table.add_row(
            name if query.is_active else f"[dim]{name}[/dim]",
            f"{query.batch:,}",
            f"{query.rows_in_per_s:,.0f}",
            f"{query.rows_out_per_s:,.0f}",
            f"{query.rows_out:,}",
            ", ".join(f"{topic} {count:,}" for topic, count in query.lag.items()),
            state,
        )
    return table
