"""Unclean elections whose reply waits until the new leaders have answered.

A replica that is elected although records may be lost can still refuse to lead, because its disk
has failed. Only its response to LeaderAndIsr shows that. The reply does not wait for a leader that
is slow to answer: it counts as elected, and the death of its broker is another event.
"""

import asyncio
from collections.abc import Mapping

from odradek.controller.events import ElectLeaders, LeaderAndIsrResponseReceived
from odradek.controller.partition_outcome import PartitionOutcome
from odradek.store.payloads import LeaderAndIsr
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition


class UncleanElections:
    """Replies to unclean elections that wait for the new leaders' responses."""

    def __init__(self) -> None:
        self._waiting: dict[ElectLeaders, dict[TopicPartition, LeaderAndIsr]] = {}
        self._results: dict[ElectLeaders, dict[TopicPartition, PartitionOutcome]] = {}

    def wait(
        self,
        request: ElectLeaders,
        results: dict[TopicPartition, PartitionOutcome],
        elected: Mapping[TopicPartition, LeaderAndIsr],
        timeout_s: float,
    ) -> None:
        self._waiting[request] = dict(elected)
        self._results[request] = results
        asyncio.get_running_loop().call_later(timeout_s, self._finish, request)

    def answered(self, event: LeaderAndIsrResponseReceived) -> None:
        """A broker answered a LeaderAndIsr."""
        if not self._waiting:
            return
        epochs = {
            TopicPartition(topic.topic_name, state.partition_index): state.leader_epoch
            for topic in event.request.topic_states
            for state in topic.partition_states
        }
        errors = {
            TopicPartition(error.topic_name, error.partition_index): error.error_code
            for error in event.response.partition_errors
        }
        for request, waiting in list(self._waiting.items()):
            for tp, state in list(waiting.items()):
                if state.leader != event.broker_id or epochs.get(tp, -1) < state.leader_epoch:
                    continue
                del waiting[tp]
                error = event.response.error_code or errors.get(tp, ErrorCode.NONE)
                if error != ErrorCode.NONE:
                    self._results[request][tp] = PartitionOutcome(
                        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                        f"broker {event.broker_id} was elected and refused to lead:"
                        f" {name_of_error(error)}; its log says why",
                    )
            if not waiting:
                self._finish(request)

    def _finish(self, request: ElectLeaders) -> None:
        if self._waiting.pop(request, None) is not None:
            request.succeed(self._results.pop(request))

    def refuse(self, broker_id: int) -> None:
        """The term has ended."""
        for request in self._waiting:
            request.refuse(broker_id)
        self._waiting.clear()
        self._results.clear()


def name_of_error(code: int) -> str:
    """A newer broker may know codes that we do not."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
