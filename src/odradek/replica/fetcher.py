"""A follower's line to one leader: find where the logs part, cut, then fetch and append for ever.

docs/spec/controller-and-replication.md section 5.2, docs/spec/interchange-with-apache-kafka.md
sections A.3 and A.4.

Each partition goes through the same phases: TRUNCATING until its log agrees with the leader's, then
FETCHING. A partition with an error rests for a while; one that was fenced, or whose leader lost
committed records, is dropped until the controller says something new.

One fetch is under way at a time. It waits at the leader until there is data; when a partition is
added meanwhile, an empty fetch is sent after it, which makes the leader answer the first at once.
The records of an answer go to the log straight from the buffer they were received in.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Protocol

from odradek.log.log import Log
from odradek.log.results import UnexpectedOffset
from odradek.replica.config import ReplicaConfig
from odradek.replica.copying import append_copied
from odradek.replica.fetch_session import FollowerSession, Position
from odradek.replica.partition import Partition
from odradek.replica.throttle import ReplicationQuota, is_throttled_replica
from odradek.replica.truncation import LostCommittedRecords, check_kept, truncation_for
from odradek.wire.batch import header_at
from odradek.wire.connection import Connection
from odradek.wire.errors import DecodeError, ErrorCode, KafkaError
from odradek.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.wire.topics import TopicPartition

__all__ = ["FetcherHost", "ReplicaFetcher"]

logger = logging.getLogger(__name__)

FETCH_VERSION = 11
OFFSET_FOR_LEADER_EPOCH_VERSION = 3
LIST_OFFSETS_VERSION = 5
LATEST = -1
EARLIEST = -2
# A leader often learns of its office a moment after we do: the first tries come quickly.
BACKOFF_FIRST_S = 0.01
RESPONSE_OVERHEAD_BYTES = 16 * 1024 * 1024


class Phase(Enum):
    TRUNCATING = "truncating"
    FETCHING = "fetching"
    OUT_OF_RANGE = "out of range"


class FetcherHost(Protocol):
    """What a fetcher needs of the replica manager around it."""

    broker_id: int
    config: ReplicaConfig
    follower_quota: ReplicationQuota

    def endpoint(self, broker_id: int) -> tuple[str, int] | None:
        """Where the leader listens for brokers, if the metadata cache knows it."""
        ...

    def partition_failed(self, partition: Partition, error: Exception) -> None:
        """The fetcher has given the partition up until the next LeaderAndIsr."""
        ...

    def run_wakeups(self) -> None:
        """High watermarks have moved: do what that woke."""
        ...

    def checkpoint_high_watermarks(self) -> None:
        """One has gone down: a crash must not make it look as if records were lost."""
        ...


class Followed:
    """One partition as its fetcher sees it."""

    __slots__ = ("backoff_s", "lag", "leader_epoch", "partition", "phase", "rests_until")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.phase = Phase.TRUNCATING
        self.rests_until = 0.0
        self.backoff_s = BACKOFF_FIRST_S
        self.lag: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return self.partition.topic_partition

    @property
    def log(self) -> Log:
        """As it is now: a move to another directory puts another in its place."""
        return self.partition.local_log


class ReplicaFetcher:
    """The partitions this broker follows from one leader, or a share of them."""

    def __init__(self, host: FetcherHost, leader_id: int, index: int) -> None:
        self.leader_id = leader_id
        self._host = host
        self._config = host.config
        self._client_id = f"broker-{host.broker_id}-fetcher-{index}"
        self._loop = asyncio.get_running_loop()
        self._followed: dict[TopicPartition, Followed] = {}
        self._wanted: dict[TopicPartition, Position] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._unwanted: set[TopicPartition] = set()
        self._unsettled: dict[TopicPartition, Followed] = {}  # not fetching, for whatever reason
        self._session = FollowerSession()
        self._connection: Connection | None = None
        self._connected_to: tuple[str, int] | None = None
        self._in_flight: asyncio.Future[FetchResponse] | None = None
        self._kicked: asyncio.Future[FetchResponse] | None = None
        self._wakeup = asyncio.Event()
        self._backoff_s = BACKOFF_FIRST_S
        self._counts = {"fetches": 0, "bytes": 0, "errors": 0, "truncations": 0, "failed": 0}
        self._task = asyncio.ensure_future(self._run())

    def __len__(self) -> int:
        return len(self._followed)

    # Partitions come and go

    def add(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            followed = Followed(partition)
            of = partition.topic_partition
            self._followed[of] = followed
            self._unsettle(followed, Phase.TRUNCATING)
        self._kick()

    def remove(self, topic_partition: TopicPartition) -> Partition | None:
        followed = self._followed.pop(topic_partition, None)
        if followed is None:
            return None
        self._unsettled.pop(topic_partition, None)
        self._withdraw(topic_partition)
        return followed.partition

    def reconnect_if_moved(self) -> None:
        """The leader may listen elsewhere now, or at last: do not rest any longer."""
        if self._connection is not None and self._host.endpoint(self.leader_id) not in (
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

    def _unsettle(self, followed: Followed, phase: Phase) -> None:
        followed.phase = phase
        self._unsettled[followed.topic_partition] = followed
        self._withdraw(followed.topic_partition)

    def _withdraw(self, of: TopicPartition) -> None:
        if self._wanted.pop(of, None) is not None:
            self._changed.pop(of, None)
            self._unwanted.add(of)

    def _settle(self, followed: Followed) -> None:
        """The log agrees with the leader's up to its end: fetch from there."""
        of = followed.topic_partition
        self._unsettled.pop(of, None)
        followed.phase = Phase.FETCHING
        self._want(of, followed)

    def _want(self, of: TopicPartition, followed: Followed) -> None:
        log = followed.log
        self._wanted[of] = Position(
            log.end_offset,
            log.start_offset,
            followed.leader_epoch,
            self._config.replica_fetch_max_bytes,
        )
        self._changed[of] = None
        self._unwanted.discard(of)

    def _rest(self, followed: Followed, why: str) -> None:
        """Try this partition again a little later, and later each time."""
        self._counts["errors"] += 1
        logger.info("%s rests for %.2f s: %s", followed.topic_partition, followed.backoff_s, why)
        followed.rests_until = self._loop.time() + followed.backoff_s
        followed.backoff_s = min(
            followed.backoff_s * 2, self._config.replica_fetch_backoff_ms / 1000
        )
        self._unsettle(followed, followed.phase)

    def _fail(self, followed: Followed, error: Exception) -> None:
        self._counts["failed"] += 1
        self.remove(followed.topic_partition)
        self._host.partition_failed(followed.partition, error)

    # The loop

    async def _run(self) -> None:
        while True:
            try:
                connection = await self._connect()
                while connection is self._connection and not connection.closed:
                    await self._step(connection)
            except (ConnectionError, TimeoutError, DecodeError, OSError) as error:
                logger.info("following broker %d: %s", self.leader_id, error)
                await self._after_failure()
            except Exception:
                # Whatever it is, these partitions must not be left without a fetcher.
                logger.exception("following broker %d", self.leader_id)
                await self._after_failure()

    async def _connect(self) -> Connection:
        while not self._followed:
            await self._wait(None)
        endpoint = self._host.endpoint(self.leader_id)
        if endpoint is None:
            raise ConnectionError(f"it is not known where broker {self.leader_id} listens")
        if self._connection is None or self._connection.closed:
            self._connection = await Connection.open(
                *endpoint,
                client_id=self._client_id,
                max_response_bytes=self._config.replica_fetch_response_max_bytes
                + RESPONSE_OVERHEAD_BYTES,
                timeout=self._config.replica_socket_timeout_ms / 1000,
            )
            self._connected_to = endpoint
            self._session.restart(keep_id=True)
        return self._connection

    async def _after_failure(self) -> None:
        self._counts["errors"] += 1
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._kicked is not None:
            await asyncio.gather(self._kicked, return_exceptions=True)
            self._kicked = None
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
        rested = [f for f in self._unsettled.values() if f.rests_until <= now]
        if rested:
            await self._settle_all(connection, rested)
        self._apply_throttle()
        if self._wanted or (self._unwanted and self._session.is_incremental):
            await self._fetch(connection)
        elif self._unsettled:
            until = min(followed.rests_until for followed in self._unsettled.values())
            await self._wait(max(0.0, until - self._loop.time()))
        else:
            await self._wait(None)

    # Truncating

    async def _settle_all(self, connection: Connection, rested: list[Followed]) -> None:
        asking = []
        for followed in rested:
            if not self._is_current(followed):
                continue  # The controller has spoken while another's range was asked for.
            if followed.phase is Phase.OUT_OF_RANGE:
                await self._find_range(connection, followed)
            elif followed.phase is Phase.FETCHING:
                self._settle(followed)
            elif followed.log.epochs.latest_epoch is None:
                self._truncate(followed, followed.log.high_watermark, complete=True)
            else:
                asking.append(followed)
        if asking:
            await self._ask_epochs(connection, asking)

    async def _ask_epochs(self, connection: Connection, asking: list[Followed]) -> None:
        by_topic: dict[str, list[OffsetForLeaderPartition]] = {}
        for followed in asking:
            of = followed.topic_partition
            epoch = followed.log.epochs.latest_epoch
            assert epoch is not None
            by_topic.setdefault(of.topic, []).append(
                OffsetForLeaderPartition(
                    partition=of.partition,
                    current_leader_epoch=followed.leader_epoch,
                    leader_epoch=epoch,
                )
            )
        response: OffsetForLeaderEpochResponse = await connection.request(
            OffsetForLeaderEpochRequest(
                replica_id=self._host.broker_id,
                topics=[
                    OffsetForLeaderTopic(topic=topic, partitions=partitions)
                    for topic, partitions in by_topic.items()
                ],
            ),
            OFFSET_FOR_LEADER_EPOCH_VERSION,
        )
        asked = {followed.topic_partition: followed for followed in asking}
        for topic in response.topics:
            for answer in topic.partitions:
                followed_now = asked.get(TopicPartition(topic.topic, answer.partition))
                if followed_now is None or not self._is_current(followed_now):
                    continue
                if answer.error_code != ErrorCode.NONE:
                    self._react(followed_now, ErrorCode(answer.error_code))
                    continue
                log = followed_now.log
                offset, complete = truncation_for(
                    answer.leader_epoch,
                    answer.end_offset,
                    epochs=log.epochs,
                    log_end=log.end_offset,
                    high_watermark=log.high_watermark,
                )
                self._truncate(followed_now, offset, complete=complete)

    def _is_current(self, followed: Followed) -> bool:
        return self._followed.get(followed.topic_partition) is followed

    def _truncate(self, followed: Followed, offset: int, *, complete: bool) -> None:
        log, partition = followed.log, followed.partition

        def cut() -> None:
            check_kept(
                offset,
                log.high_watermark,
                elected_from_isr=partition.elected_from_isr,
                unclean_allowed=log.config.unclean_leader_election_enable,
            )
            mark = log.high_watermark
            if partition.truncate(offset):
                self._counts["truncations"] += 1
                logger.info("%s is cut to %d", partition.topic_partition, log.end_offset)
            if log.high_watermark < mark:
                self._host.checkpoint_high_watermarks()

        if self._locally(followed, cut) and complete:
            followed.backoff_s = BACKOFF_FIRST_S
            self._settle(followed)

    def _locally(self, followed: Followed, work: Callable[[], None]) -> bool:
        """Do something to the log. What goes wrong there is the partition's end, or a rest."""
        try:
            work()
        except (LostCommittedRecords, UnexpectedOffset) as error:
            self._fail(followed, error)
        except KafkaError as error:
            if error.error == ErrorCode.KAFKA_STORAGE_ERROR:
                self._fail(followed, error)
            else:
                self._rest(followed, str(error))
        else:
            return True
        return False

    async def _find_range(self, connection: Connection, followed: Followed) -> None:
        """The leader does not have the offset we want: cut to its end, or begin at its start."""
        leader_end = await self._leader_offset(connection, followed, LATEST)
        if leader_end is None:
            return
        if leader_end < followed.log.end_offset:
            self._truncate(followed, leader_end, complete=True)
            return
        leader_start = await self._leader_offset(connection, followed, EARLIEST)
        if leader_start is None:
            return
        if leader_start > followed.log.end_offset:
            start, partition = leader_start, followed.partition
            if not self._locally(followed, lambda: partition.restart_at(start)):
                return
        self._settle(followed)

    async def _leader_offset(
        self, connection: Connection, followed: Followed, timestamp: int
    ) -> int | None:
        of = followed.topic_partition
        response: ListOffsetsResponse = await connection.request(
            ListOffsetsRequest(
                replica_id=self._host.broker_id,
                isolation_level=0,
                topics=[
                    ListOffsetsTopic(
                        name=of.topic,
                        partitions=[
                            ListOffsetsPartition(
                                partition_index=of.partition,
                                current_leader_epoch=followed.leader_epoch,
                                timestamp=timestamp,
                            )
                        ],
                    )
                ],
            ),
            LIST_OFFSETS_VERSION,
        )
        if not self._is_current(followed):
            return None
        answer = response.topics[0].partitions[0]
        if answer.error_code != ErrorCode.NONE:
            self._react(followed, ErrorCode(answer.error_code))
            return None
        return answer.offset

    # Fetching

    def _request(self, *, wait: bool) -> FetchRequest:
        config = self._config
        max_wait_ms = config.replica_fetch_wait_max_ms
        if not wait or self._session.is_opening:
            max_wait_ms = 0
        session = self._session.request(
            self._wanted, list(self._changed) if wait else (), self._unwanted if wait else ()
        )
        if wait:
            self._changed.clear()
            self._unwanted.clear()
        return FetchRequest(
            replica_id=self._host.broker_id,
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
        self._in_flight = connection.start(self._request(wait=True), FETCH_VERSION)
        connection.flush()  # now, not at the end of the loop's turn: somebody waits for this
        try:
            response = await self._in_flight
        finally:
            self._in_flight = None
        self._process(response)
        kicked, self._kicked = self._kicked, None
        if kicked is not None:
            # It was sent before the answer above had come, so it may bring the same records again.
            self._process(await kicked, may_repeat=True)

    def _kick(self) -> None:
        """Have the leader answer the fetch that waits there: we have something new to ask."""
        self._wakeup.set()
        if (
            self._in_flight is not None
            and self._kicked is None
            and self._session.is_incremental
            and self._connection is not None
            and not self._connection.closed
        ):
            self._kicked = self._connection.start(self._request(wait=False), FETCH_VERSION)

    def _process(self, response: FetchResponse, *, may_repeat: bool = False) -> None:
        error = ErrorCode(response.error_code)
        if error != ErrorCode.NONE:
            logger.info("fetch session with broker %d: %s", self.leader_id, error.name)
            self._session.restart(keep_id=error != ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return
        self._session.opened(response.session_id)
        self._backoff_s = BACKOFF_FIRST_S
        for topic in response.responses:
            for data in topic.partitions:
                of = TopicPartition(topic.topic, data.partition_index)
                followed = self._followed.get(of)
                if followed is None or followed.phase is not Phase.FETCHING:
                    continue
                if may_repeat and _is_behind(data, followed.log.end_offset):
                    continue
                self._take(of, followed, data)
        self._host.run_wakeups()

    def _take(self, of: TopicPartition, followed: Followed, data: PartitionData) -> None:
        if data.error_code != ErrorCode.NONE:
            self._react(followed, ErrorCode(data.error_code))
            return
        position = self._wanted.get(of)
        if position is None or position.offset != followed.log.end_offset:
            return
        if not self._locally(followed, lambda: self._append(followed, data)):
            return
        log = followed.log
        if log.end_offset != position.offset or log.start_offset != position.log_start_offset:
            followed.backoff_s = BACKOFF_FIRST_S
            self._want(of, followed)
        followed.lag = max(0, data.high_watermark - log.end_offset)

    def _append(self, followed: Followed, data: PartitionData) -> None:
        log, partition = followed.log, followed.partition
        if data.records:
            assert not isinstance(data.records, list)  # a decoded message has one buffer
            info = append_copied(log, data.records)
            self._counts["bytes"] += info.size_bytes
            if self._is_throttled(followed):
                self._host.follower_quota.record(info.size_bytes)
        partition.follower_high_watermark(data.high_watermark)
        if log.start_offset < data.log_start_offset <= log.high_watermark:
            log.advance_start_offset(data.log_start_offset)

    def _react(self, followed: Followed, error: ErrorCode) -> None:
        """docs/spec/interchange-with-apache-kafka.md section A.4: what an error of the leader
        means for us."""
        if error == ErrorCode.OFFSET_OUT_OF_RANGE and followed.phase is Phase.FETCHING:
            self._unsettle(followed, Phase.OUT_OF_RANGE)
        elif (
            error == ErrorCode.FENCED_LEADER_EPOCH
            and followed.leader_epoch == followed.partition.leader_epoch
        ):
            self._fail(followed, KafkaError(error, f"by broker {self.leader_id}"))
        else:
            self._rest(followed, error.name)

    # Throttling

    def _is_throttled(self, followed: Followed) -> bool:
        return is_throttled_replica(
            followed.log.config.follower_replication_throttled_replicas,
            followed.topic_partition.partition,
            self._host.broker_id,
        )

    def _apply_throttle(self) -> None:
        """While the quota is overdrawn, do not ask for throttled partitions that lag."""
        if not self._host.follower_quota.is_exceeded:
            return
        for of in list(self._wanted):
            followed = self._followed[of]
            if followed.lag != 0 and self._is_throttled(followed):
                followed.rests_until = self._loop.time() + BACKOFF_FIRST_S * 10
                self._unsettle(followed, Phase.FETCHING)

    def statistics(self) -> dict[str, int]:
        return {
            **self._counts,
            "partitions": len(self._followed),
            "unsettled": len(self._unsettled),
            "session_restarts": self._session.restarts,
        }


def _is_behind(data: PartitionData, log_end: int) -> bool:
    """Whether these records begin before the end of the log that they are for."""
    if not data.records:
        return False
    assert not isinstance(data.records, list)  # a decoded message has one buffer
    return header_at(data.records).base_offset < log_end
