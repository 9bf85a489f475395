"""Which errors are retriable, and how long to retry.

A broker that is no longer the leader, a coordinator that is loading, a connection that broke: the
cluster is changing, and the same request will succeed a little later. Any other error is raised at
once.
"""

import asyncio
from random import Random

from odradek.wire.connection import HandshakeFailed
from odradek.wire.errors import ErrorCode, KafkaError

# These mean that the client's metadata is out of date: refresh it before the next try.
STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
RETRIABLE = STALE_METADATA | {
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}

PAUSE_FIRST_S = 0.02
PAUSE_MAX_S = 1.0
JITTER = 0.2


def is_retriable(error: Exception) -> bool:
    """Whether to retry: the connection failed, or the broker answered with a retriable error."""
    if isinstance(error, KafkaError):
        return error.error in RETRIABLE
    return isinstance(error, OSError | TimeoutError) and not isinstance(error, HandshakeFailed)


class RetryBudget:
    """Time to spend on one call: back-offs that double, with jitter so that many clients do not
    retry at the same moment."""

    def __init__(self, seconds: float, rng: Random) -> None:
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._rng = rng
        self._pause_s = PAUSE_FIRST_S
        self._pauses = 0

    @property
    def remaining_s(self) -> float:
        return max(0.0, self._deadline - asyncio.get_running_loop().time())

    def renew(self, seconds: float) -> None:
        """After progress: begin again with short back-offs and a new deadline."""
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._pause_s = PAUSE_FIRST_S

    async def back_off(self, error: Exception) -> None:
        """Wait before a retry; raises `error` if it is not retriable or the time is spent."""
        pause_s = self._pause_s * self._rng.uniform(1 - JITTER, 1 + JITTER)
        if not is_retriable(error) or pause_s > self.remaining_s:
            raise error
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        self._pauses += 1
        await asyncio.sleep(pause_s)

    def statistics(self) -> dict[str, float]:
        return {"pauses": self._pauses, "remaining_s": self.remaining_s}
