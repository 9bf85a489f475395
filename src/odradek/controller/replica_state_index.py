"""The state of every replica, by broker: so it is also the index "replicas on broker b"."""

from odradek.controller import replica_states
from odradek.controller.replica_states import ReplicaState
from odradek.wire.topics import TopicPartition


class ReplicaStateIndex:
    """A replica that is not here is NON_EXISTENT."""

    def __init__(self) -> None:
        self._by_broker: dict[int, dict[TopicPartition, ReplicaState]] = {}

    def on(self, broker_id: int) -> dict[TopicPartition, ReplicaState]:
        """The states of one broker's replicas, to read and write in bulk."""
        states = self._by_broker.get(broker_id)
        if states is None:
            states = self._by_broker[broker_id] = {}
        return states

    def state(self, tp: TopicPartition, broker_id: int) -> ReplicaState:
        return self._by_broker.get(broker_id, {}).get(tp, replica_states.NON_EXISTENT)

    def set_state(self, tp: TopicPartition, broker_id: int, state: ReplicaState) -> None:
        self.on(broker_id)[tp] = state

    def remove(self, tp: TopicPartition, broker_id: int) -> None:
        self._by_broker.get(broker_id, {}).pop(tp, None)

    def remove_partition(self, tp: TopicPartition) -> None:
        for states in self._by_broker.values():
            states.pop(tp, None)

    def brokers(self) -> set[int]:
        """The brokers that have replicas, registered or not."""
        return {broker_id for broker_id, states in self._by_broker.items() if states}
