"""What is said of a failure, and what is reported of a batch."""

from collections.abc import Callable
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import StreamingQueryException

from odradek.spark.errors import NoBroker
from odradek.spark.pipeline.progress import (
    QUIET_S,
    LogLines,
    QueryProgress,
    batches_of,
    progress_of,
)
from odradek.spark.pipeline.runner import (
    RESTARTS_MAX,
    JavaEnded,
    PipelineFailed,
    RowsOut,
    Run,
    java_is_there,
    plain_text,
)
from odradek.spark.pipeline.spec import Pipeline

SPARK = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {} SQLSTATE: XXKST
=== Streaming Query ===
Identifier: events [id = 1, runId = 2]
Logical Plan:
~Project ValueError: of the plan
"""
PYTHON = """Job aborted due to stage failure:
  Traceback (most recent call last):
    File "worker.py", line 1, in main
  KeyError: 'first'

  During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "sink.py", line 184, in send
    from .arrays import frozen
{}
"""


def test_a_failure_of_ours_is_its_own_sentence() -> None:
    text = PYTHON.format("odradek.spark.errors.SourceError: the topic is gone")
    assert plain_text(Exception(SPARK.format(text))) == "the topic is gone"
    # As the driver's part of a source fails, without the traceback.
    unreachable = f"{NoBroker.__module__}.{NoBroker.__name__}: no broker answers at b:1: refused"
    text = f"[PYTHON_STREAMING] Failed when a source perform initialOffset: {unreachable}\n"
    assert plain_text(Exception(SPARK.format(text))) == "no broker answers at b:1: refused"


def test_a_failure_in_python_is_the_last_line_of_its_traceback() -> None:
    text = PYTHON.format("pyarrow.lib.ArrowInvalid: x\npackage.OtherError: cannot import 'frozen'")
    assert plain_text(Exception(SPARK.format(text))) == "OtherError: cannot import 'frozen'"


def test_a_failure_of_java_beneath_python_is_the_reason_that_java_gives() -> None:
    text = """Traceback (most recent call last):
  File "protocol.py", line 327, in get_return_value
py4j.protocol.Py4JJavaError: An error occurred while calling o2059.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).
\tat org.apache.spark.api.python.BasePythonRunner
Caused by: java.io.IOException: Broken pipe
"""
    expected = "Python worker exited unexpectedly (crashed)."
    assert plain_text(Exception(SPARK.format(text))) == expected
    shorter = text.split("Caused by")[0]
    assert plain_text(Exception(SPARK.format(shorter))) == "Exception thrown in awaitResult:"
    assert plain_text(Exception(text.split(" line 327", 1)[1])) == expected


def test_what_java_raises_is_a_sentence() -> None:
    class Raised(Py4JJavaError):  # type: ignore[misc]  # the library has no types
        def __init__(self) -> None:
            pass

        def __str__(self) -> str:
            return (
                "An error occurred while calling o72.load.\n"
                ": org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).\n"
                "\tat org.apache.spark.sql.execution.QueryExecution\n"
            )

    sentence = r"^Python worker exited unexpectedly \(crashed\)\.$"
    with pytest.raises(PipelineFailed, match=sentence), java_is_there():
        raise Raised


def test_any_other_failure_is_its_first_paragraph_in_one_line() -> None:
    assert plain_text(Exception(SPARK.format("no worker."))).endswith(
        "terminated with exception: no worker. SQLSTATE: XXKST"
    )
    text = "[PARSE] bad,\nand worse\n\n== SQL ==\nJVM stacktrace: x"
    assert plain_text(Exception(text)) == "[PARSE] bad, and worse"


def test_rows_are_counted_by_batch() -> None:
    rows = RowsOut()
    for batch in range(150):
        rows.add(batch, 2)
    assert rows.total == 300
    assert (rows.of_batch(149), rows.of_batch(10), rows.of_batch(200)) == (2, 0, 0)


def test_one_line_of_a_batch() -> None:
    query = QueryProgress("events", 3, 1_000, 500.0, 400.0, 2_000, {"clicks": 7}, rows_out=9_000)
    assert query.line() == (
        "events: batch 3, 1,000 rows in 2.0 s (500/s in, 400/s out), 9,000 rows out in this run, "
        "lag clicks 7"
    )
    letters = QueryProgress("dead_letters_clicks", 0, state_rows=4)
    assert letters.line().endswith("0 dead letters in this run, lag unknown, 4 rows of state")


class Query:
    """A query that is initialised for a few looks, and then active or failed."""

    def __init__(self, failure: str = "") -> None:
        self._failure = failure
        self._messages = ["Initializing StreamExecution", "Initializing sources"]
        self.has_its_name = True

    @property
    def isActive(self) -> bool:  # noqa: N802  # Spark's name
        return bool(self._messages) or not self._failure

    @property
    def status(self) -> dict[str, str]:
        return {"message": self._messages.pop(0) if self._messages else "Waiting for data"}

    def exception(self) -> Exception | None:
        return Exception(self._failure) if self._failure else None

    def awaitTermination(self, timeout: int) -> bool:  # noqa: N802  # Spark's name
        self.has_its_name = False
        raise StreamingQueryException(self._failure)


class First(Query):
    """A query at its first batch, until it has reported one."""

    lastProgress: Any = None  # noqa: N815  # Spark's name

    def __init__(self) -> None:
        super().__init__()
        self._messages = []


class Orphan(Query):
    """A query whose Java was killed."""

    @property
    def lastProgress(self) -> None:  # noqa: N802  # Spark's name
        raise Py4JNetworkError("Answer from Java side is empty")

    @property
    def recentProgress(self) -> None:  # noqa: N802  # Spark's name
        raise ConnectionRefusedError("Connection refused")


class Writer:
    """Gives one query after the other, and no two at once."""

    def __init__(self, *queries: Query) -> None:
        self.left = list(queries)
        self._last: Query | None = None

    def queryName(self, name: str) -> "Writer":  # noqa: N802  # Spark's name
        return self

    def option(self, name: str, value: str) -> "Writer":
        return self

    def start(self) -> Query:
        assert self._last is None or not self._last.has_its_name, "its name is taken"
        self._last = self.left.pop(0)
        return self._last


SLOW = "Python worker failed to connect back."


def started(*failures: str, tell: Callable[[str], None] = lambda text: None) -> tuple[Run, Writer]:
    spark: Any = None
    run, writer = Run(Pipeline("p", "/c", (), ()), spark, tell), Writer(*map(Query, failures))
    run._start("events", writer)
    return run, writer


def test_a_query_whose_python_was_too_slow_is_started_again_and_says_so() -> None:
    reported: list[str] = []
    run, writer = started(SLOW, SLOW, "", tell=reported.append)
    assert run.goes_on()
    assert run.goes_on()
    assert not writer.left
    assert run.goes_on()
    restarts = [line for line in reported if "restart" in line]
    assert len(restarts) == 2
    for number, line in enumerate(restarts, 1):
        assert line.startswith("events: a Python process did not come up within the 10 s")
        assert f"restart {number} of {RESTARTS_MAX}" in line
        assert 'master = "local[1]"' in line


def test_but_not_for_ever_and_not_for_another_reason() -> None:
    run, writer = started(*[SLOW] * 20)
    too_often = rf"^events: a Python process .* after {RESTARTS_MAX} restarts; give Spark fewer"
    with pytest.raises(PipelineFailed, match=too_often):
        run.wait()
    assert 20 - len(writer.left) == 1 + RESTARTS_MAX
    for two_drivers in (
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.",
        "Multiple streaming queries are concurrently using file:/c/events/offsets.",
    ):
        run, writer = started(two_drivers, "")
        with pytest.raises(PipelineFailed, match=r"^events: another driver .* checkpoint, /c;"):
            run.goes_on()
    run, writer = started("the topic is gone", "")
    with pytest.raises(PipelineFailed, match="events: the topic is gone"):
        run.wait()
    assert len(writer.left) == 1


def test_a_java_that_is_gone_is_one_sentence_also_for_who_looks_at_progress() -> None:
    run, _ = started("")
    orphan: Any = Orphan()
    run.queries["events"] = orphan
    with pytest.raises(JavaEnded):
        progress_of(run)
    with pytest.raises(JavaEnded):
        batches_of(run, "events", -1)


def test_a_log_has_a_line_now_and_then_until_the_first_batch() -> None:
    run, _ = started("")
    query: Any = First()
    run.queries["events"] = query
    now_s = 100.0
    lines = LogLines(lambda: now_s)
    assert lines.new(run) == []
    now_s += QUIET_S
    assert lines.new(run) == ["events: no batch yet after 10 s (Waiting for data)"]
    assert lines.new(run) == []
    now_s += 3 * QUIET_S
    assert lines.new(run) == ["events: no batch yet after 40 s (Waiting for data)"]
    query.lastProgress = {
        "batchId": 0,
        "numInputRows": 0,
        "inputRowsPerSecond": 0.0,
        "durationMs": {},
        "sources": [],
        "stateOperators": [],
    }
    now_s += QUIET_S
    (line,) = lines.new(run)
    assert line.startswith("events: batch 0, 0 rows")
    assert lines.new(run) == []
