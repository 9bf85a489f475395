"""A sink that is a topic, or that of dead letters: each batch is written there exactly once.

The query's id in Spark's checkpoint is the application, the batch's number its version: a batch
that Spark repeats is found, task by task, and left alone (`odradek.spark.exactly_once`).
`exactlyOnce = false` among the options writes at least once, without transactions.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.spark.exactly_once import Part, require_mark
from odradek.spark.sink_options import sink_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXACTLY_ONCE = "exactlyonce"


class TopicSink:
    """Where one query's rows go. Raises OptionError for options that are wrong."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = {EXACTLY_ONCE: "true"} | {name.lower(): of for name, of in options.items()}
        self._options = sink_options(self._given)
        self._is_first = True

    def land(self, rows: "DataFrame", number: int, query: str) -> int:
        """Write a batch; how many rows it has."""
        how = self._options.transactions
        if how is None:
            return _write(rows, self._given)
        if self._is_first and number and how.fail_on_missing_mark:
            # Only the first batch of a run can be a repetition.
            asyncio.run(require_mark(self._options, Part(f"{how.prefix}.{query}", number, 0)))
        self._is_first = False
        return _write(rows, {**self._given, "txnAppId": query, "txnVersion": str(number)})


def _write(rows: "DataFrame", options: Mapping[str, str]) -> int:
    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit

    counted = Observation()
    observed = rows.observe(counted, count(lit(1)).alias("rows"))
    observed.write.format("odradek").options(**options).mode("append").save()
    return int(counted.get["rows"])
