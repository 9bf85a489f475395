"""The brokers that are registered, and which replicas on them the controller may count on."""

from odradek.controller.assignment import ReplicaAssignment
from odradek.store.payloads import BrokerRegistration
from odradek.wire.topics import TopicPartition


class RegisteredBrokers(dict[int, BrokerRegistration]):
    """Registrations by broker id, in the order in which the controller learnt of them."""

    def __init__(self) -> None:
        super().__init__()
        self.shutting_down: set[int] = set()
        # Brokers that have replicas and were gone before this term began.
        self.absent_at_start: set[int] = set()
        # Replicas that a broker cannot serve, by broker.
        self.offline_dirs: dict[int, set[TopicPartition]] = {}

    def is_live(self, broker_id: int) -> bool:
        return broker_id in self and broker_id not in self.shutting_down

    @property
    def live(self) -> set[int]:
        """Registered and not shutting down."""
        return self.keys() - self.shutting_down

    def is_replica_online(
        self, tp: TopicPartition, broker_id: int, *, count_shutting_down: bool = False
    ) -> bool:
        if broker_id not in self:
            return False
        if broker_id in self.shutting_down and not count_shutting_down:
            return False
        return not (self.offline_dirs and tp in self.offline_dirs.get(broker_id, ()))

    def online_replicas(
        self,
        tp: TopicPartition,
        assignment: ReplicaAssignment,
        *,
        count_shutting_down: bool = False,
    ) -> tuple[int, ...]:
        """The assigned replicas that are online, in order of assignment."""
        return tuple(
            replica
            for replica in assignment.replicas
            if self.is_replica_online(tp, replica, count_shutting_down=count_shutting_down)
        )

    def clear_offline_dir(self, tp: TopicPartition, broker_id: int) -> None:
        """Forget that a broker could not open this replica."""
        marked = self.offline_dirs.get(broker_id)
        if marked is not None:
            marked.discard(tp)
            if not marked:
                del self.offline_dirs[broker_id]
