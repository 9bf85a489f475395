"""The active controller: everything that exists only while this broker is the elected one."""

from odradek.controller.partition_state_machine import PartitionStateMachine
from odradek.controller.reassigner import Reassigner
from odradek.controller.replica_state_machine import ReplicaStateMachine
from odradek.controller.term import Term
from odradek.controller.topic_deletion import TopicDeletions
from odradek.controller.unclean_elections import UncleanElections


class ActiveController:
    """A term, and the parts that work in it."""

    def __init__(self, term: Term) -> None:
        self.term = term
        self.unclean_elections = UncleanElections()
        self.partitions = PartitionStateMachine(term)
        self.replicas = ReplicaStateMachine(term)
        self.deletion = TopicDeletions(term, self.partitions, self.replicas)
        self.reassigner = Reassigner(term, self.partitions, self.replicas, self.deletion)

    def close(self) -> None:
        self.term.close()
        self.reassigner.plans.close()
        self.unclean_elections.refuse(self.term.broker_id)

    def statistics(self) -> dict[str, object]:
        return {
            **self.term.context.statistics(),
            "waiting_reassignments": len(self.reassigner.queue),
            "moves_of_plans": len(self.reassigner.plans.queue),
            "channels": self.term.channels.statistics(),
        }
