"""How long old versions can be read, and what is removed afterwards.

One setting, the history, is both how long the log keeps its entries and how long a file that no
version needs any more stays. The second is an hour at least: a file that is placed and not yet
committed must be younger than what vacuum removes.

On a local file system each old entry costs a commit 10 to 15 microseconds, since the directory is
listed: the default keeps about 3,000 versions, which is under 5 % of a trigger.
"""

import math
import re
from collections.abc import Mapping

from odradek.spark.errors import TableError
from odradek.spark.tables.table import CHECKPOINT_VERSIONS, Table

VERSIONS_KEPT = 3000
HISTORY_S_MAX = 7 * 86_400
FILES_S_MIN = 3600
LOG_RETENTION = "delta.logRetentionDuration"
FILE_RETENTION = "delta.deletedFileRetentionDuration"
INTERVAL = re.compile(r"(?:interval\s+)?(\d+)\s*(millisecond|second|minute|hour|day|week)s?")
SECONDS = {
    "millisecond": 0.001,
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86_400,
    "week": 604_800,
}
COST_PER_ENTRY_S = 12e-6


def seconds(text: str) -> float:
    """A time such as "7 days"; ValueError if it is none."""
    match = INTERVAL.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f'a time such as "7 days", not {text!r}')
    return int(match[1]) * SECONDS[match[2]]


def default_history_s(trigger_s: float) -> int:
    """As long as the versions kept take at this trigger."""
    return max(60, min(HISTORY_S_MAX, int(VERSIONS_KEPT * max(trigger_s, 1.0))))


def commit_cost_s(history_s: float, trigger_s: float) -> float:
    """What the entries of a history add to each commit."""
    return history_s / max(trigger_s, 1.0) * COST_PER_ENTRY_S


def properties(history_s: float) -> dict[str, str]:
    """The table properties that keep a history."""
    return {
        LOG_RETENTION: f"interval {math.ceil(history_s)} seconds",
        FILE_RETENTION: f"interval {max(FILES_S_MIN, math.ceil(history_s))} seconds",
        "delta.checkpointInterval": str(CHECKPOINT_VERSIONS),
    }


def kept_s(configuration: Mapping[str, str | None]) -> float:
    """How long a file that no version needs any more stays; a week where nothing is said."""
    text = configuration.get(FILE_RETENTION)
    return seconds(text) if text else HISTORY_S_MAX


def vacuum(
    table: Table, older_than_s: float | None = None, *, full: bool = True, dry_run: bool = False
) -> list[str]:
    """Remove the files that no kept version needs; `full` also those that none ever named.

    TableError for a time within the history: older versions could not be read any more."""
    table.refresh()
    kept = max(FILES_S_MIN, kept_s(table.delta.metadata().configuration))
    if older_than_s is not None and older_than_s < kept:
        raise TableError(
            f"{table.location.uri}: versions are kept for {kept / 3600:.1f} hours, and vacuum "
            f"removes nothing younger; the table's {FILE_RETENTION} makes it shorter"
        )
    hours = math.ceil(older_than_s / 3600) if older_than_s is not None else None
    removed: list[str] = table.delta.vacuum(
        hours, dry_run=dry_run, enforce_retention_duration=False, full=full
    )
    return removed
