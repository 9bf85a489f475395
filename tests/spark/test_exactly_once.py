"""Tasks that write exactly once: killed, repeated, doubled, and repeated with other rows."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.deaths import ROWS, STEPS

from odradek.client.retries import is_retriable
from odradek.client.transactions import ListedTransaction
from odradek.spark.errors import BadRow, NotExactlyOnce, OptionError
from odradek.spark.exactly_once import (
    MARKS,
    Outcome,
    Part,
    Reached,
    Step,
    Tally,
    create_marks,
    finish,
    tell,
    write_once,
)
from odradek.spark.pipeline.topic_sink import TopicSink
from odradek.spark.sink_options import sink_options
from odradek.wire.errors import ErrorCode, KafkaError

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

DEATHS = Path(__file__).parent / "deaths.py"
# INVALID_TXN_STATE: the first is asked to commit offsets while the rival's transaction, by which a
# broker knows the producer, is ending. It was open when Apache Kafka decided that the request need
# not be verified, and is no more when the records are appended, before epochs are compared.
FENCED = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
)


def values(*numbers: int) -> pa.RecordBatch:
    texts = [b"%d" % number for number in numbers]
    return pa.RecordBatch.from_pydict({"value": pa.array(texts, pa.binary())})


class Sink:
    """What the tasks and the driver of a query do to one topic."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.topic: str = cluster.create(partitions=2)
        self.writer = f"odradek.{self.topic}"

    def options(self, **more: object) -> Any:
        return sink_options(self.cluster.options(topic=self.topic, exactlyOnce="true", **more))

    def part(self, batch: int, task: int = 0, run: str = "") -> Part:
        return Part(self.writer, batch, task, run, is_stream=True)

    def write(
        self,
        part: Part,
        rows: "pa.RecordBatch | Iterator[pa.RecordBatch]",
        reached: Reached = tell,
        **more: object,
    ) -> Outcome:
        batches = iter([rows]) if isinstance(rows, pa.RecordBatch) else rows
        written = write_once(self.options(**more), ["value"], part, batches, reached)
        return asyncio.run(written)

    def finish(self, outcomes: Sequence[Outcome]) -> None:
        asyncio.run(finish(self.options(), outcomes, tell))

    def transaction(self, part: Part) -> ListedTransaction:
        """That of a task, as its coordinator lists it."""
        client = self.cluster.client
        listed = client.run(client.transactions.list_transactions())
        found: ListedTransaction
        (found,) = [one for one in listed if one.transactional_id == part.name]
        return found

    def numbers(self) -> list[int]:
        return sorted(int(value) for value in self.cluster.read_committed(self.topic))


@pytest.fixture
def sink(cluster: Any) -> Sink:
    return Sink(cluster)


def test_tasks_that_are_killed_before_each_of_their_steps(sink: Sink) -> None:
    done = subprocess.run(
        [sys.executable, DEATHS, sink.cluster.bootstrap, sink.topic, sink.writer],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    # Only the one that died after its commit has left rows, and they are not written again.
    said = [f"{step.name} {step is Step.RETURN}" for step in STEPS]
    assert done.stdout.splitlines() == said
    assert sink.numbers() == list(range(ROWS * len(STEPS)))


class Rival:
    """Another attempt of the same task, which begins and ends at a given moment of the first."""

    def __init__(self, sink: Sink, moment: Step, part: Part, rows: pa.RecordBatch) -> None:
        self.outcomes: list[Outcome] = []
        self._moment = moment
        self._write = lambda: sink.write(part, rows)

    def __call__(self, step: Step, _: Part) -> None:
        if step is self._moment:
            # The first has a loop on this thread.
            with ThreadPoolExecutor(1) as elsewhere:
                self.outcomes.append(elsewhere.submit(self._write).result())


def test_of_two_attempts_at_once_one_is_fenced_or_finds_the_mark(sink: Sink) -> None:
    for batch, moment in enumerate(STEPS):
        part, rows = sink.part(batch), values(batch)
        rival = Rival(sink, moment, part, rows)
        if moment in (Step.TAKE_ID, Step.RETURN):
            # One of them comes too late, and skips.
            first = sink.write(part, rows, rival)
            assert first.was_there is (moment is Step.TAKE_ID)
            assert rival.outcomes[0].was_there is (moment is Step.RETURN)
        else:
            with pytest.raises(KafkaError) as fenced:
                sink.write(part, rows, rival)
            assert fenced.value.error in FENCED, moment
            assert not rival.outcomes[0].was_there
        # The driver's mark, without which the next batch of a stream would be refused.
        sink.finish(rival.outcomes)
    assert sink.numbers() == list(range(len(STEPS)))


def test_a_repeated_batch_with_other_rows_is_noticed(sink: Sink) -> None:
    first = [sink.write(sink.part(0, task), values(task, task + 10)) for task in range(2)]
    # The same rows in another order, and in other pieces, are the same rows.
    again = sink.write(sink.part(0), iter([values(10), values(0)]))
    assert again == Outcome(sink.part(0), 2, was_there=True)
    with pytest.raises(NotExactlyOnce, match=r"task 1 of batch 0 .*: 2 rows .* has 1 rows"):
        sink.write(sink.part(0, 1), values(1))
    with pytest.raises(NotExactlyOnce, match=r"task 0 .*: 2 rows .* has 2 rows"):
        sink.write(sink.part(0), values(0, 11))
    # A task that has none of its rows any more writes nothing, and the driver looks for it.
    empty = Outcome(sink.part(0, 1), 0)
    assert sink.write(sink.part(0, 1), iter([])) == empty
    for fewer in ([first[0], empty], [first[0]]):
        with pytest.raises(NotExactlyOnce, match=r"task 1 of batch 0 .*: 2 rows .* has 0 rows"):
            sink.finish(fewer)
    with pytest.raises(NotExactlyOnce, match="came from tasks 0, 0"):
        sink.finish([first[0], first[0]])
    sink.finish(first)
    sink.finish([])
    assert sink.numbers() == [0, 1, 10, 11]


def test_a_mark_that_is_gone_or_ahead_is_noticed(sink: Sink) -> None:
    with pytest.raises(NotExactlyOnce, match=r"batch 3 .* mark of the batch before is gone"):
        sink.write(sink.part(3), values(0))
    done = sink.write(sink.part(3, run="a"), values(0), failOnMissingMark="false")
    sink.finish([done])
    # A task that had no rows before has no mark; the driver's is enough.
    sink.finish([sink.write(sink.part(4, task, "a"), values(task + 1)) for task in range(2)])
    with pytest.raises(NotExactlyOnce, match=r"write batch 3 .*, and batch 4 is committed"):
        sink.write(sink.part(3), values(0))
    with pytest.raises(NotExactlyOnce, match=r"write batch 3 .*, and batch 4 is committed"):
        sink.finish([done])
    assert sink.numbers() == [0, 1, 2]
    # A pipeline asks at the first batch of a run, before it writes anything.
    frame: Any = None
    with pytest.raises(NotExactlyOnce, match=r"batch 5 .* mark of the batch before is gone"):
        TopicSink(sink.cluster.options(topic=sink.topic)).land(frame, 5, "unknown")
    with pytest.raises(OptionError, match="prefix is for exactlyOnce=true"):
        TopicSink({"exactlyonce": "false", "kafka.transactional.id.prefix": "p"})
    # Marks are nobody's records.
    assert sink.cluster.read_committed(MARKS.topic) == []


def test_a_failed_attempt_leaves_nothing_that_readers_wait_for(sink: Sink) -> None:
    wrong = pa.RecordBatch.from_pydict(
        {"value": pa.array([b"1"], pa.binary()), "partition": pa.array([7], pa.int32())}
    )
    columns = ["value", "partition"]
    failing = write_once(sink.options(), columns, sink.part(0), iter([wrong]), tell)
    with pytest.raises(BadRow, match="has 2 partitions"):
        asyncio.run(failing)
    with pytest.raises(NotExactlyOnce, match=r"to their transaction\.max\.timeout\.ms"):
        sink.write(sink.part(0), values(1), kafka__transaction__timeout__ms=1_000_000)
    sink.cluster.wait_until(
        lambda: sink.transaction(sink.part(0)).state == "CompleteAbort", "the abort"
    )


def test_the_coordinator_dies_before_the_commit(sink: Sink) -> None:
    sink.finish([sink.write(sink.part(0), values(*range(50)))])
    victim = sink.transaction(sink.part(0)).coordinator
    part, rest = sink.part(1), values(*range(50, 100))

    def kill_coordinator(step: Step, _: Part) -> None:
        if step is Step.COMMIT:
            sink.cluster.brokers.kill(victim)

    try:
        assert sink.write(part, rest, kill_coordinator) == Outcome(part, 50)
        assert sink.write(part, rest).was_there
    finally:
        sink.cluster.revive(victim)
    assert sink.numbers() == list(range(100))


def test_the_mark_of_another_query_is_named() -> None:
    assert Tally.decoded(Tally(3, 2**64 - 1).encoded()) == Tally(3, 2**64 - 1)
    with pytest.raises(NotExactlyOnce, match="is not ours: 'x'"):
        Tally.decoded("x")


def test_the_topic_of_marks_waits_for_brokers_enough(sink: Sink) -> None:
    cluster = sink.cluster
    cluster.client.run(create_marks(cluster.client.client))
    cluster.delete(MARKS.topic)
    cluster.brokers.stop(3)
    try:
        with pytest.raises(KafkaError, match="larger than available brokers") as caught:
            cluster.client.run(create_marks(cluster.client.client))
    finally:
        cluster.revive(3)
    assert is_retriable(caught.value), "the broker that is missing may come back"
    sink.write(sink.part(0), values(1))
    assert sink.numbers() == [1]
