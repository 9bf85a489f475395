"""A follower's fetches from one leader: truncate to what the leader has, then fetch and append.

docs/spec/controller-and-replication.md section 5.2,
docs/spec/interchange-with-apache-kafka.md sections A.3 and A.4, docs/spec/protocol-ladder.md 5.

Each partition is in a phase: TRUNCATING until its log agrees with the leader's, then FETCHING, or
OUT_OF_RANGE while it is looked up where the leader's log begins and ends. From inter-broker
protocol 2.7-IV1 on a fetch names the epoch that the log ends in, and the leader answers where the
logs diverge, if they do (KIP-595): then only a log without epochs is truncated before it is
fetched. Below that version OffsetForLeaderEpoch is asked first. In any phase a partition
with an error backs off for a while; one that was fenced, or whose leader lost committed records, is
dropped until the controller's next LeaderAndIsr.

One fetch is under way at a time. It waits at the leader until there is data; when a partition is
added meanwhile, an empty fetch is sent after it, which makes the leader answer the first at once.
The records of an answer go to the log straight from the buffer they were received in.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from odradek.log.log import Log, UnexpectedOffset
from odradek.replica.config import ReplicaConfig
from odradek.replica.follower.append import append_copied
from odradek.replica.follower.fetch_session import (
    FetchSessionRequest,
    FollowerSession,
    Position,
)
from odradek.replica.follower.role import FollowerRole
from odradek.replica.follower.truncation import LostCommittedRecords, check_kept, truncation_for
from odradek.replica.leader.fetch_state import Wakeups
from odradek.replica.partition import Partition
from odradek.replica.throttle import ReplicationQuota, is_throttled_replica
from odradek.replica.traffic import Traffic
from odradek.store.payloads import NO_EPOCH
from odradek.wire.batch import header_at
from odradek.wire.connection import Connection
from odradek.wire.errors import DecodeError, ErrorCode, KafkaError
from odradek.wire.messages.fetch import (
    CONSUMER,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from odradek.wire.messages.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.wire.topics import TopicPartition

__all__ = ["FetcherContext", "Phase", "ReplicaFetcher"]

logger = logging.getLogger(__name__)

# The first version of Fetch that says which incarnation of a broker it is from (KIP-903).
INCARNATION_SINCE = 15
# A leader often learns that it leads a moment after its followers: the first retries come quickly.
BACKOFF_FIRST_S = 0.01
# Bounds of the wait for an exceeded quota: not to ask again at once, and to notice a new rate.
THROTTLED_S_MIN, THROTTLED_S_MAX = 0.01, 0.5
RESPONSE_OVERHEAD_BYTES = 16 * 1024 * 1024
COUNTED = ("fetches", "errors", "truncations")


class Phase(Enum):
    """What a partition needs next from its leader."""

    TRUNCATING = "truncating"
    FETCHING = "fetching"
    OUT_OF_RANGE = "out of range"


@dataclass(frozen=True, slots=True)
class FetcherContext:
    """What all fetchers of one broker share."""

    broker_id: int
    config: ReplicaConfig
    quota: ReplicationQuota
    wakeups: Wakeups
    # Where a broker listens for other brokers, if that is known.
    endpoint: Callable[[int], tuple[str, int] | None]
    # Writes the high watermarks to disk.
    checkpoint: Callable[[], None]
    traffic: Traffic
    # Of this broker's registration, -1 before it: which incarnation fetches.
    broker_epoch: Callable[[], int] = lambda: NO_EPOCH
    # Of all fetchers, also of those that have ended: a count never falls.
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))


class PartitionFetchState:
    """One partition as its fetcher sees it, in one role."""

    __slots__ = ("backoff_s", "delayed_until", "lag", "partition", "phase", "role", "tp")

    def __init__(self, partition: Partition) -> None:
        assert isinstance(partition.role, FollowerRole), partition
        self.partition = partition
        self.tp = partition.tp
        self.role = partition.role
        self.phase = Phase.TRUNCATING
        self.delayed_until = 0.0
        self.backoff_s = BACKOFF_FIRST_S
        self.lag: int | None = None

    @property
    def log(self) -> Log:
        """As it is now: a move to another directory puts another in its place."""
        return self.partition.replica.open_log


class ReplicaFetcher:
    """The partitions this broker follows from one leader, or a share of them."""

    def __init__(
        self,
        context: FetcherContext,
        leader_id: int,
        index: int,
        *,
        on_failure: Callable[[Partition, Exception], None],
    ) -> None:
        """`on_failure` is called when a partition is dropped until the next LeaderAndIsr."""
        self.leader_id = leader_id
        self._context = context
        self._config = context.config
        self._protocol = context.config.protocol
        self._on_failure = on_failure
        self._client_id = f"broker-{context.broker_id}-fetcher-{index}"
        self._loop = asyncio.get_running_loop()
        self._states: dict[TopicPartition, PartitionFetchState] = {}
        # Of these, the ones to attend to before they are fetched: not FETCHING, or delayed.
        self._not_fetching: dict[TopicPartition, PartitionFetchState] = {}
        self._session = FollowerSession(may_be_by_id=self._protocol.fetches_by_id)
        self._connection: Connection | None = None
        self._connected_to: tuple[str, int] | None = None
        self._in_flight: asyncio.Future[FetchResponse] | None = None
        self._interrupting: asyncio.Future[FetchResponse] | None = None
        self._wakeup = asyncio.Event()
        self._backoff_s = BACKOFF_FIRST_S
        self._counts = context.counts
        self._task = asyncio.ensure_future(self._run())

    def __len__(self) -> int:
        return len(self._states)

    # Partitions come and go

    def add(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            state = PartitionFetchState(partition)
            self._states[state.tp] = state
            self._suspend(state, Phase.TRUNCATING)
        self._interrupt_long_poll()

    def topic_id_changed(self, tp: TopicPartition) -> None:
        """The controller calls its topic by another id, or by none."""
        state = self._states.get(tp)
        if state is not None and tp in self._session.wanted:
            self._fetch_from_end(state)
            self._interrupt_long_poll()

    def remove(self, tp: TopicPartition) -> None:
        if self._states.pop(tp, None) is not None:
            self._not_fetching.pop(tp, None)
            self._session.withdraw(tp)

    def reconnect_if_moved(self) -> None:
        """The leader may listen elsewhere now, or at last: end any back-off."""
        if self._connection is not None and self._context.endpoint(self.leader_id) not in (
            None,
            self._connected_to,
        ):
            self._connection.close()
        self._wakeup.set()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()

    def _suspend(self, state: PartitionFetchState, phase: Phase) -> None:
        """Do not fetch this partition until it has been attended to."""
        state.phase = phase
        self._not_fetching[state.tp] = state
        self._session.withdraw(state.tp)

    def _start_fetching(self, state: PartitionFetchState) -> None:
        """The log agrees with the leader's up to its end: fetch from there."""
        self._not_fetching.pop(state.tp, None)
        state.phase = Phase.FETCHING
        self._fetch_from_end(state)

    def _fetch_from_end(self, state: PartitionFetchState) -> None:
        log = state.log
        self._session.want(
            state.tp,
            Position(
                log.end_offset,
                log.start_offset,
                state.role.epoch,
                self._config.replica_fetch_max_bytes,
                self._last_fetched_epoch(log),
                state.role.topic_id,
            ),
        )

    def _last_fetched_epoch(self, log: Log) -> int:
        """The epoch that the log ends in: the leader finds by it where the logs diverge."""
        latest = log.epochs.latest_epoch
        return latest if latest is not None and self._protocol.truncates_on_fetch else NO_EPOCH

    def _back_off(self, state: PartitionFetchState, why: str) -> None:
        """Try this partition again a little later, and later each time."""
        self._counts["errors"] += 1
        logger.info(
            "%s: follower of broker %d in leader epoch %d backing off for %.2f s: %s",
            state.tp,
            self.leader_id,
            state.role.epoch,
            state.backoff_s,
            why,
        )
        state.delayed_until = self._loop.time() + state.backoff_s
        state.backoff_s = min(state.backoff_s * 2, self._config.replica_fetch_backoff_ms / 1000)
        self._suspend(state, state.phase)

    def _fail(self, state: PartitionFetchState, error: Exception) -> None:
        self.remove(state.tp)
        self._on_failure(state.partition, error)

    # The loop

    async def _run(self) -> None:
        while True:
            try:
                connection = await self._connect()
                while connection is self._connection and not connection.closed:
                    await self._step(connection)
            except (ConnectionError, TimeoutError, DecodeError, KafkaError, OSError) as error:
                logger.info("fetcher from broker %d failed, retrying: %s", self.leader_id, error)
                await self._after_failure()
            except Exception:
                # Whatever it is, these partitions must not be left without a fetcher.
                logger.exception("fetcher from broker %d failed, retrying", self.leader_id)
                await self._after_failure()

    async def _connect(self) -> Connection:
        while not self._states:
            await self._wait(None)
        endpoint = self._context.endpoint(self.leader_id)
        if endpoint is None:
            raise ConnectionError(f"the address of broker {self.leader_id} is not known yet")
        if self._connection is None or self._connection.closed:
            self._connection = await Connection.open(
                *endpoint,
                client_id=self._client_id,
                max_response_bytes=self._config.replica_fetch_response_max_bytes
                + RESPONSE_OVERHEAD_BYTES,
                timeout=self._config.replica_socket_timeout_ms / 1000,
                security=self._config.security,
            )
            self._connected_to = endpoint
            self._session.restart(keep_id=True)
        return self._connection

    async def _after_failure(self) -> None:
        self._counts["errors"] += 1
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._interrupting is not None:
            await asyncio.gather(self._interrupting, return_exceptions=True)
            self._interrupting = None
        await self._wait(self._backoff_s)
        self._backoff_s = min(self._backoff_s * 2, self._config.replica_fetch_backoff_ms / 1000)

    async def _wait(self, seconds: float | None) -> None:
        """Until something is added, the leader moves, or the time is up."""
        self._wakeup.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._wakeup.wait()
        except TimeoutError:
            pass  # The time was up, as asked.

    async def _step(self, connection: Connection) -> None:
        now = self._loop.time()
        due = [state for state in self._not_fetching.values() if state.delayed_until <= now]
        if due:
            await self._attend_to(connection, due)
        self._apply_throttle()
        if self._session.has_request:
            await self._fetch(connection)
        elif self._not_fetching:
            until = min(state.delayed_until for state in self._not_fetching.values())
            await self._wait(max(0.0, until - self._loop.time()))
        else:
            await self._wait(None)

    # Truncating

    async def _attend_to(self, connection: Connection, due: list[PartitionFetchState]) -> None:
        """Do what each partition needs before it can be fetched."""
        asking = []
        for state in due:
            if not self._is_current(state):
                continue  # Its role has changed while another's range was asked for.
            if state.phase is Phase.OUT_OF_RANGE:
                await self._find_range(connection, state)
            elif state.phase is Phase.FETCHING:
                self._start_fetching(state)
            elif state.log.epochs.latest_epoch is None:
                self._truncate(state, state.log.high_watermark, complete=True)
            elif self._protocol.truncates_on_fetch:
                self._start_fetching(state)
            else:
                asking.append(state)
        if asking:
            await self._ask_epochs(connection, asking)

    async def _ask_epochs(self, connection: Connection, asking: list[PartitionFetchState]) -> None:
        by_topic: dict[str, list[OffsetForLeaderPartition]] = {}
        for state in asking:
            tp = state.tp
            epoch = state.log.epochs.latest_epoch
            assert epoch is not None
            by_topic.setdefault(tp.topic, []).append(
                OffsetForLeaderPartition(
                    partition=tp.partition,
                    current_leader_epoch=state.role.epoch,
                    leader_epoch=epoch,
                )
            )
        response = await connection.request(
            OffsetForLeaderEpochRequest(
                replica_id=self._context.broker_id,
                topics=[
                    OffsetForLeaderTopic(topic=topic, partitions=partitions)
                    for topic, partitions in by_topic.items()
                ],
            ),
            self._protocol.offset_for_leader_epoch_version,
        )
        asked = {state.tp: state for state in asking}
        for topic in response.topics:
            for answer in topic.partitions:
                found = asked.get(TopicPartition(topic.topic, answer.partition))
                if found is None or not self._is_current(found):
                    continue
                if answer.error_code != ErrorCode.NONE:
                    self._react(found, ErrorCode(answer.error_code))
                    continue
                log = found.log
                offset, complete = truncation_for(
                    answer.leader_epoch,
                    answer.end_offset,
                    epochs=log.epochs,
                    log_end=log.end_offset,
                    high_watermark=log.high_watermark,
                )
                self._truncate(found, offset, complete=complete)

    def _is_current(self, state: PartitionFetchState) -> bool:
        return self._states.get(state.tp) is state

    def _truncate(self, state: PartitionFetchState, offset: int, *, complete: bool) -> None:
        log = state.log

        def truncate() -> None:
            check_kept(
                offset,
                log.high_watermark,
                elected_from_isr=state.role.elected_from_isr,
                unclean_allowed=log.config.unclean_leader_election_enable,
            )
            mark = log.high_watermark
            if state.partition.replica.truncate_to(offset):
                self._counts["truncations"] += 1
                logger.info(
                    "%s: follower truncated to offset %d in leader epoch %d",
                    state.tp,
                    log.end_offset,
                    state.role.epoch,
                )
            if log.high_watermark < mark:
                # A crash must not make it look as if records were lost.
                self._context.checkpoint()

        if self._locally(state, truncate) and complete:
            state.backoff_s = BACKOFF_FIRST_S
            self._start_fetching(state)

    def _locally(self, state: PartitionFetchState, work: Callable[[], None]) -> bool:
        """Do something to the log. If that fails, the partition is dropped or backs off."""
        try:
            work()
        except (LostCommittedRecords, UnexpectedOffset) as error:
            self._fail(state, error)
        except KafkaError as error:
            if error.error == ErrorCode.KAFKA_STORAGE_ERROR:
                self._fail(state, error)
            else:
                self._back_off(state, str(error))
        else:
            return True
        return False

    async def _find_range(self, connection: Connection, state: PartitionFetchState) -> None:
        """The leader does not have this offset: truncate to its end, or begin at its start."""
        log = state.log
        leader_end = await self._leader_offset(connection, state, LATEST)
        if leader_end is None:
            return
        if leader_end < state.log.end_offset:
            self._truncate(state, leader_end, complete=True)
            return
        leader_start = await self._leader_offset(connection, state, EARLIEST)
        if leader_start is None:
            return
        if leader_start > state.log.end_offset:
            start, replica = leader_start, state.partition.replica
            if self._locally(state, lambda: replica.truncate_fully_and_start_at(start)):
                self._start_fetching(state)
            return
        # The leader has moved meanwhile, or it is not the offset that it does not know.
        state.phase = Phase.FETCHING
        self._back_off(
            state,
            f"the leader has offsets {leader_start} to {leader_end}, and refuses {log.end_offset}"
            f" after leader epoch {log.epochs.latest_epoch}",
        )

    async def _leader_offset(
        self, connection: Connection, state: PartitionFetchState, timestamp: int
    ) -> int | None:
        tp = state.tp
        response = await connection.request(
            ListOffsetsRequest(
                replica_id=self._context.broker_id,
                isolation_level=0,
                topics=[
                    ListOffsetsTopic(
                        name=tp.topic,
                        partitions=[
                            ListOffsetsPartition(
                                partition_index=tp.partition,
                                current_leader_epoch=state.role.epoch,
                                timestamp=timestamp,
                            )
                        ],
                    )
                ],
            ),
            self._protocol.list_offsets_version,
        )
        if not self._is_current(state):
            return None
        answer = response.topics[0].partitions[0]
        if answer.error_code != ErrorCode.NONE:
            self._react(state, ErrorCode(answer.error_code))
            return None
        return answer.offset

    # Fetching

    def _start(
        self, connection: Connection, session: FetchSessionRequest, max_wait_ms: int
    ) -> "asyncio.Future[FetchResponse]":
        protocol = self._protocol
        version = protocol.fetch_version if session.by_id else protocol.fetch_version_by_name
        request = self._request(session, max_wait_ms, version)
        # At once, not at the end of the loop's turn: produces wait for this.
        return connection.start(request, version, is_last=True)

    def _request(
        self, session: FetchSessionRequest, max_wait_ms: int, version: int
    ) -> FetchRequest:
        config, context = self._config, self._context
        state = None
        if version >= INCARNATION_SINCE:
            state = ReplicaState(replica_id=context.broker_id, replica_epoch=context.broker_epoch())
        return FetchRequest(
            replica_id=context.broker_id if state is None else CONSUMER,
            replica_state=state,
            max_wait_ms=max_wait_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            isolation_level=0,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=session.topics,
            forgotten_topics_data=session.forgotten,
        )

    async def _fetch(self, connection: Connection) -> None:
        self._counts["fetches"] += 1
        wait_ms = 0 if self._session.is_opening else self._wait_ms()
        self._in_flight = self._start(connection, self._session.request(), wait_ms)
        try:
            response = await self._in_flight
        finally:
            self._in_flight = None
        self._process(response)
        interrupting, self._interrupting = self._interrupting, None
        if interrupting is not None:
            # It was sent before the answer above had come, so it may bring the same records again.
            self._process(await interrupting, may_repeat=True)

    def _wait_ms(self) -> int:
        """How long the leader may wait for news: not beyond the moment at which a partition that is
        delayed is asked for again."""
        most = self._config.replica_fetch_wait_max_ms
        if not self._not_fetching:
            return most
        now = self._loop.time()
        delays = (state.delayed_until - now for state in self._not_fetching.values())
        left_s = min((delay for delay in delays if delay > 0), default=most / 1000)
        return min(most, math.ceil(left_s * 1000))

    def _interrupt_long_poll(self) -> None:
        """Have the leader answer the fetch that waits there: there is something new to ask."""
        self._wakeup.set()
        if (
            self._in_flight is not None
            and self._interrupting is None
            and self._session.is_incremental
            and self._connection is not None
            and not self._connection.closed
        ):
            request = self._session.empty_request()
            self._interrupting = self._start(self._connection, request, max_wait_ms=0)

    def _process(self, response: FetchResponse, *, may_repeat: bool = False) -> None:
        error = ErrorCode(response.error_code)
        if error != ErrorCode.NONE:
            logger.info("fetch session with broker %d restarts: %s", self.leader_id, error.name)
            self._session.restart(keep_id=error != ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return
        names = [self._session.name_of(topic.topic, topic.topic_id) for topic in response.responses]
        if None in names:
            logger.warning(
                "broker %d answers a fetch with topics that were not requested", self.leader_id
            )
            self._session.restart(keep_id=True)
            return
        self._session.opened(response.session_id)
        self._backoff_s = BACKOFF_FIRST_S
        for name, topic in zip(names, response.responses, strict=True):
            for data in topic.partitions:
                state = self._states.get(TopicPartition(name or "", data.partition_index))
                if state is None or state.phase is not Phase.FETCHING:
                    continue
                if may_repeat and _is_behind(data, state.log.end_offset):
                    continue
                self._process_partition(state, data)
        self._context.wakeups.run()

    def _process_partition(self, state: PartitionFetchState, data: PartitionData) -> None:
        if data.error_code != ErrorCode.NONE:
            self._react(state, ErrorCode(data.error_code))
            return
        position = self._session.wanted.get(state.tp)
        if position is None:
            return
        if position.offset != state.log.end_offset:
            # An error came between the append and here: ask from the end, not for the same again.
            self._fetch_from_end(state)
            return
        diverging = data.diverging_epoch
        if diverging is not None and diverging.epoch >= 0:
            self._truncate_to_divergence(state, diverging.epoch, diverging.end_offset)
            return
        if not self._locally(state, lambda: self._append(state, data)):
            return
        log = state.log
        if log.end_offset != position.offset or log.start_offset != position.log_start_offset:
            state.backoff_s = BACKOFF_FIRST_S
            self._fetch_from_end(state)
        state.lag = max(0, data.high_watermark - log.end_offset)

    def _truncate_to_divergence(
        self, state: PartitionFetchState, epoch: int, end_offset: int
    ) -> None:
        """The leader's log is another one from the end of `epoch` on. Nothing else of its answer is
        about our log; what is left of that is fetched on, and may diverge again."""
        log = state.log
        before = log.end_offset, log.epochs.latest_epoch
        offset, _ = truncation_for(
            epoch,
            end_offset,
            epochs=log.epochs,
            log_end=log.end_offset,
            high_watermark=log.high_watermark,
        )
        self._suspend(state, Phase.TRUNCATING)
        self._truncate(state, offset, complete=False)
        if not self._is_current(state) or state.delayed_until > self._loop.time():
            return  # it could not be truncated
        if (log.end_offset, log.epochs.latest_epoch) == before:
            self._back_off(state, f"no divergence at the end of leader epoch {epoch}")
        elif log.epochs.latest_epoch is not None:
            self._start_fetching(state)

    def _append(self, state: PartitionFetchState, data: PartitionData) -> None:
        log = state.log
        if data.records:
            assert not isinstance(data.records, list)  # a decoded message has one buffer
            info = append_copied(log, data.records, state.role.epoch)
            if not info.size_bytes:
                raise KafkaError(
                    ErrorCode.UNKNOWN_LEADER_EPOCH,
                    f"broker {self.leader_id} sent no whole batch of leader epochs up to"
                    f" {state.role.epoch}",
                )
            self._context.traffic.replication_bytes_in += info.size_bytes
            if self._is_throttled(state):
                self._context.quota.record(info.size_bytes)
        state.role.advance_high_watermark(data.high_watermark)
        if log.start_offset < data.log_start_offset <= log.high_watermark:
            log.advance_start_offset(data.log_start_offset)

    def _react(self, state: PartitionFetchState, error: ErrorCode) -> None:
        """What an error of the leader means for the follower:
        docs/spec/interchange-with-apache-kafka.md section A.4."""
        if error == ErrorCode.OFFSET_OUT_OF_RANGE and state.phase is Phase.FETCHING:
            self._suspend(state, Phase.OUT_OF_RANGE)
        elif (
            error == ErrorCode.FENCED_LEADER_EPOCH
            and state.role.epoch == state.partition.leader_epoch
        ):
            self._fail(state, KafkaError(error, f"by broker {self.leader_id}"))
        else:
            self._back_off(state, error.name)

    # Throttling

    def _is_throttled(self, state: PartitionFetchState) -> bool:
        return is_throttled_replica(
            state.log.config.follower_replication_throttled_replicas,
            state.tp.partition,
            self._context.broker_id,
        )

    def _apply_throttle(self) -> None:
        """While the quota is overdrawn, do not ask for throttled partitions that lag."""
        exceeded_s = self._context.quota.seconds_exceeded()
        if not exceeded_s:
            return
        wait_s = min(max(exceeded_s, THROTTLED_S_MIN), THROTTLED_S_MAX)
        for tp in list(self._session.wanted):
            state = self._states[tp]
            if state.lag != 0 and self._is_throttled(state):
                state.delayed_until = self._loop.time() + wait_s
                self._suspend(state, Phase.FETCHING)

    def lags(self) -> Iterator[int]:
        """Records that each partition is behind its leader, as far as is known."""
        for state in self._states.values():
            if state.lag is not None:
                yield state.lag

    def statistics(self) -> dict[str, int]:
        return {
            "partitions": len(self._states),
            "not_fetching": len(self._not_fetching),
            "session_restarts": self._session.restarts,
        }


def _is_behind(data: PartitionData, log_end: int) -> bool:
    """Whether these records begin before the end of the log that they are for."""
    if not data.records:
        return False
    assert not isinstance(data.records, list)  # a decoded message has one buffer
    return header_at(data.records).base_offset < log_end
