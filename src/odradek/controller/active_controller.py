"""The active controller: everything that exists only while this broker is the elected one."""

from odradek.controller.config import ControllerConfig
from odradek.controller.journal import Journal
from odradek.controller.partition_state_machine import PartitionStateMachine
from odradek.controller.reassigner import Reassigner
from odradek.controller.replica_state_machine import ReplicaStateMachine
from odradek.controller.term import Host, Term
from odradek.controller.topic_deletion import TopicDeletions
from odradek.controller.unclean_elections import UncleanElections
from odradek.store.cluster import ClusterStore
from odradek.store.controller_nodes import ControllerTerm


class ActiveController(Term):
    """A term, with the parts that work in it."""

    def __init__(
        self,
        broker_id: int,
        elected: ControllerTerm,
        store: ClusterStore,
        config: ControllerConfig,
        journal: Journal,
        host: Host,
    ) -> None:
        super().__init__(broker_id, elected, store, config, journal, host)
        self.unclean_elections = UncleanElections()
        self.partitions = PartitionStateMachine(self)
        self.replicas = ReplicaStateMachine(self)
        self.deletion = TopicDeletions(self, self.partitions, self.replicas)
        self.reassigner = Reassigner(self, self.partitions, self.replicas, self.deletion)

    def close(self) -> None:
        super().close()
        self.reassigner.plans.close()
        self.unclean_elections.refuse(self.broker_id)

    def statistics(self) -> dict[str, object]:
        return {
            **self.context.statistics(),
            "waiting_reassignments": len(self.reassigner.queue),
            "moves_of_plans": len(self.reassigner.plans.queue),
            "channels": self.channels.statistics(),
        }
