"""Reading a topic for ever: `spark.readStream.format("odradek")`.

Spark builds this reader twice, once in a process that lives as long as the query and answers for
its offsets, and once to plan the tasks; nothing is connected until the first question. What is
decided is in `position` and `ranges`; this asks the cluster and obeys the triggers.
docs/spec/spark-kafka-format.md sections 3 and 7 (e).
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from odradek.spark.errors import DataLoss, OptionError, plainly
from odradek.spark.lookup import Chosen, Lookup
from odradek.spark.options import SourceOptions, source_options
from odradek.spark.position import (
    Found,
    Identity,
    Position,
    Progress,
    next_position,
    progress,
    ranges_between,
)
from odradek.spark.range_reader import RangePartition, partitions_of, read_range
from odradek.spark.ranges import OffsetRange, Offsets, limit_batch, nested_offsets, split
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

COMMIT_AGAIN_S = 30.0


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Answers Spark's questions about one stream, and reads one range in each task."""

    def __init__(
        self,
        options: dict[str, str],
        refusal: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Spark hides what is raised here, so the options are read at the first question.
        self._given = options
        self._refusal = refusal
        self._clock = clock
        self._lookup: Lookup | None = None
        self._initial: Position | None = None
        self._target: Found | None = None
        self._available_now = False
        self._fired_at: float | None = None
        self._latest: Offsets | None = None
        self._published: Offsets | None = None
        # What was not committed at the last try, and when that was.
        self._failed: tuple[Offsets, float] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lookup": None}

    @property
    def _options(self) -> SourceOptions:
        if self._refusal is not None:
            raise OptionError(self._refusal)
        return source_options(self._given, streaming=True)

    def _cluster(self) -> Lookup:
        if self._lookup is None:
            self._lookup = Lookup(self._options)
        return self._lookup

    # Spark's questions, in the order of a run

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._available_now = True

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        with plainly():
            options = self._options
        # What is returned tells this trigger from Trigger.Once, which reads all there is.
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.min_offsets is not None:
            return ReadMinRows(options.min_offsets)
        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query begins. Spark asks twice and means the same: the answer is kept."""
        with plainly():
            if self._initial is None:
                cluster = self._cluster()
                chosen = cluster.chosen()
                limit = self._options.start
                offsets = cluster.concrete(cluster.resolve(limit, chosen.partitions, is_start=True))
                identity = self._identity(chosen.topic_ids, offsets)
                self._initial = Position(dict(sorted(offsets.items())), offsets, identity)
            return self._initial.to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Up to where the next batch goes. `start` was finished, or Spark would not ask."""
        with plainly():
            before = Position.from_json(start)
            self._publish(before)
            found, going = self._look(before)
            end = self._admit(before, found, going, limit)
            return start if end is None else next_position(before, found, going, end).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The end of every log, for the progress report: what is left is the lag."""
        return None if self._latest is None else nested_offsets(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        with plainly():
            options = self._options
            ranges, unknown = ranges_between(
                Position.from_json(start), until := Position.from_json(end)
            )
            if unknown:
                earliest = self._cluster().earliest(unknown)
                ranges += [OffsetRange(tp, earliest[tp], until.offsets[tp]) for tp in unknown]
            return partitions_of(
                split(ranges, options.min_partitions, options.max_records), until.identity.topic_ids
            )

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, RangePartition)
        yield from read_range(self._options, partition.bounds)

    def commit(self, end: dict[str, Any]) -> None:
        self._publish(Position.from_json(end))

    def stop(self) -> None:
        if self._lookup is not None:
            self._lookup.close()

    # How they are answered

    def _look(self, before: Position) -> tuple[Found, Progress]:
        """The cluster as it is, compared with what was read; raises what is lost if it matters."""
        options = self._options
        for attempt in range(max(1, options.attempts)):
            if attempt:
                self._cluster().pause()
            found = self._find(refresh=attempt > 0)
            going = progress(before, found, options.client.get("group.id"))
            # A leader that was just elected may not know its end yet, nor a broker that has just
            # started what topics there are.
            if not going.shrunk and self._expected(before) <= set(found.latest):
                break
        self._latest = found.latest
        for loss in going.losses:
            if options.fail_on_data_loss:
                raise DataLoss(loss.condition, loss.text)
            logger.warning("%s: %s", loss.condition, loss.text)
        if not self._available_now:
            return found, going
        if self._target is None:
            self._target = found
        return self._within_target(before, found)

    def _expected(self, before: Position) -> set[TopicPartition]:
        """The partitions of which one that is not there would be a loss."""
        return set(before.offsets) | set(() if self._target is None else self._target.latest)

    def _within_target(self, before: Position, found: Found) -> tuple[Found, Progress]:
        """What a run that ends with what was there at its beginning may still read.

        It must end there, so a partition that goes missing meanwhile is an error in any case.
        """
        target = self._target
        assert target is not None
        at_target = Position(target.latest, {}, target.identity)
        since = progress(at_target, found)
        changed = since.shrunk | (since.restarted & frozenset(target.latest))
        missing = frozenset(target.latest) - frozenset(found.latest)
        if missing or changed:
            names = ", ".join(map(str, sorted(missing or changed)))
            raise DataLoss(
                "PARTITIONS_DELETED" if missing else "PARTITION_OFFSET_CHANGED",
                f"{names} {'went away' if missing else 'became another log'} while the query read "
                "what was there when it began",
            )
        return target, progress(before, target)

    def _find(self, refresh: bool = False) -> Found:
        chosen = self._cluster().chosen(refresh)
        try:
            return self._find_in(chosen)
        except KafkaError as error:
            if error.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            left = self._cluster().chosen(refresh=True)
            gone = frozenset(chosen.partitions) - frozenset(left.partitions)
            if not gone:
                raise
            return replace(self._find_in(left), gone=gone)

    def _find_in(self, chosen: Chosen) -> Found:
        cluster = self._cluster()
        latest = cluster.latest(chosen.partitions)
        earliest = cluster.earliest(chosen.partitions)
        return Found(latest, earliest, self._identity(chosen.topic_ids, latest))

    def _identity(self, topic_ids: Any, partitions: Offsets) -> Identity:
        without_id = [tp for tp in partitions if tp.topic not in topic_ids]
        firsts = self._cluster().firsts(without_id)
        return Identity(
            topic_ids,
            {tp: (at.offset, at.timestamp) for tp, at in sorted(firsts.records.items())},
            firsts.epochs,
        )

    def _admit(
        self, before: Position, found: Found, going: Progress, limit: ReadLimit
    ) -> Offsets | None:
        """The end of the batch after minOffsetsPerTrigger and maxOffsetsPerTrigger; None waits."""
        if isinstance(limit, ReadAllAvailable):
            return found.latest
        options = self._options
        if options.min_offsets is not None and not self._available_now:
            now = self._clock()
            waiting = sum(
                max(0, end - (going.begin[tp] if tp in before.offsets else 0))
                for tp, end in found.latest.items()
            )
            waited_ms = None if self._fired_at is None else (now - self._fired_at) * 1000
            if (
                waiting < options.min_offsets
                and waited_ms is not None
                and waited_ms < options.max_delay_ms
            ):
                return None
            self._fired_at = now
        if options.max_offsets is None:
            return found.latest
        return limit_batch(options.max_offsets, going.begin, found.latest)

    def _publish(self, finished: Position) -> None:
        """Commit a finished batch to the group that makes the lag visible, if there is one."""
        group = self._options.commit_group
        if group is None or finished.is_first or finished.offsets == self._published:
            return
        now = self._clock()
        if self._failed is not None:
            offsets, failed_at = self._failed
            if offsets == finished.offsets and now - failed_at < COMMIT_AGAIN_S:
                return  # Spark asks several times in a batch, which would wait each time
        try:
            self._cluster().commit(group, finished.offsets)
            self._published, self._failed = finished.offsets, None
        except (OSError, TimeoutError, KafkaError) as error:
            # The checkpoint has the truth; the group only shows it.
            if self._failed is None:
                logger.warning("the offsets of group %s are not committed: %s", group, error)
            self._failed = finished.offsets, now
