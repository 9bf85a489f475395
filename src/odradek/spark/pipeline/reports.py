"""What each batch did, for all who look at the cluster: records in the topic `odradek.pipelines`.

One record for each batch of each query, with the key PIPELINE/QUERY; the topic is compacted, so
that the last one of each stays. Reports are a courtesy: a cluster that does not take them is asked
again later, and a pipeline never waits for it or fails because of it.
"""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from odradek.client import Blocking, NewTopic, Producer
from odradek.spark.lookup import connect
from odradek.spark.options import source_options
from odradek.spark.pipeline.progress import QueryProgress, batches_of, progress_of
from odradek.spark.pipeline.runner import Run
from odradek.spark.tables.retention import seconds
from odradek.wire.errors import ErrorCode

logger = logging.getLogger(__name__)

TOPIC = "odradek.pipelines"
REPORT_S = 2.0
CLOSE_S = 10.0
# For the first answer: a run that ends because the address is wrong should not wait for it again.
CONTACT_S = 3.0
DELIVERY_TIMEOUT_S = 10.0


def milliseconds(interval: str) -> int | None:
    """Of an interval as Spark takes it, "10 seconds"; None for what is none."""
    try:
        return round(seconds(interval) * 1000)
    except ValueError:
        return None


def report_of(progress: QueryProgress, time_ms: int, more: Mapping[str, Any]) -> dict[str, Any]:
    """One batch, as the record's value has it."""
    return {
        "batch": progress.batch,
        "time_ms": time_ms,
        "rows_in": progress.rows_in,
        "rows_out": round(progress.rows_out_per_s * progress.duration_ms / 1000),
        "rows_in_per_s": progress.rows_in_per_s,
        "rows_out_per_s": progress.rows_out_per_s,
        "duration_ms": progress.duration_ms,
        "lag": dict(progress.lag),
        "state_rows": progress.state_rows,
        "state_bytes": progress.state_bytes,
        "is_active": progress.is_active,
        **more,
    }


class Reporter:
    """Reports on a run from a thread of its own, from `start` until `close`."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._reported: dict[str, int] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="reporter", daemon=True)

    def start(self) -> None:
        if any(source.kind == "topic" for source in self._run.pipeline.sources):
            self._thread.start()

    def close(self) -> None:
        """With a last word on each query, if the cluster has answered before."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    def _work(self) -> None:
        sources = self._run.pipeline.sources
        source = next(source for source in sources if source.kind == "topic")
        with connect(source_options(source.options, streaming=True)) as client:
            self._report_on(client)

    def _report_on(self, client: Blocking) -> None:
        has_topic = has_failed = is_over = False
        while not is_over:
            is_over = self._closing.wait(REPORT_S)
            if is_over and has_failed and not has_topic:
                return
            try:
                has_topic = has_topic or client.run(_make_topic(client))
                records = self._records(is_over)
                if records:
                    client.run(_send(client, records))
            except Exception as error:  # of Spark, that is restarting a query, or of the cluster
                has_failed = True
                logger.info("no report on %s now: %s", self._run.pipeline.name, error)

    def _records(self, is_over: bool) -> dict[str, list[dict[str, Any]]]:
        """What was not reported yet, by key."""
        queries = progress_of(self._run)
        letters = sum(query.rows_out for query in queries if query.is_dead_letters)
        now_ms = time.time_ns() // 1_000_000
        found: dict[str, list[dict[str, Any]]] = {}
        for query in queries:
            reported = self._reported.get(query.name, -1)
            batches = batches_of(self._run, query.name, reported)
            if is_over:
                batches.append(query)
            more = {
                "trigger_ms": milliseconds(self._run.pipeline.trigger),
                "dead_letters": letters,
                "dead_letter_topic": self._run.pipeline.dead_letters or None,
                "group": self._run.group_of(query.name),
            }
            if is_over:
                more["is_active"] = False
            key = f"{self._run.pipeline.name}/{query.name}"
            if batches:
                found[key] = [report_of(batch, now_ms, more) for batch in batches]
            self._reported[query.name] = max(reported, query.batch)
        return found


async def _make_topic(client: Blocking) -> bool:
    new = NewTopic(TOPIC, 1, -1, configs={"cleanup.policy": "compact"})
    async with asyncio.timeout(CONTACT_S):
        error = (await client.admin.create_topics([new]))[TOPIC]
    if error is not None and error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise error
    return True


async def _send(client: Blocking, records: Mapping[str, list[dict[str, Any]]]) -> None:
    async with Producer(client.client, delivery_timeout_s=DELIVERY_TIMEOUT_S) as producer:
        for key, values in records.items():
            for value in values:
                await producer.send(TOPIC, json.dumps(value).encode(), key=key.encode())
