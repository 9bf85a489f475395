"""What operators do with a cluster, for the command line, a console and Python programs alike.

    from odradek.client import Blocking
    from odradek.operations import assess, generate_plan, take_snapshot

    with Blocking("localhost:9092") as cluster:
        plan = cluster.run(generate_plan(cluster.admin, brokers=[1, 2, 3]))
        print(plan.cost.total_bytes)
        now = cluster.run(take_snapshot(cluster.admin, cluster.groups))
        for problem in assess(now):
            print(problem.severity.name, problem.text)

Decisions are pure functions over values (`plan`, `health`); `reassignment`, `throttle`, `snapshot`,
`offset_reset` and `elections` ask the cluster and act, on the event loop of their caller. Nothing
here prints.
"""

from odradek.operations.activity import (
    Activity,
    BrokerActivity,
    TopicActivity,
    compare,
    read_brokers,
)
from odradek.operations.elections import elect
from odradek.operations.formats import FORMATS, Line, reader, writer
from odradek.operations.health import History, Onset, Problem, Severity, assess
from odradek.operations.history import JournalHistory, read_history
from odradek.operations.offset_reset import OffsetReset, plan_reset
from odradek.operations.overview import BrokerSummary, Overview, TopicSummary, rate, read_overview
from odradek.operations.plan import (
    Cost,
    MoveResult,
    MoveState,
    Plan,
    Progress,
    ReplicationChange,
    Verification,
    cost_of,
    propose,
)
from odradek.operations.positions import AT_END, AT_START, Position, log_ranges, resolve
from odradek.operations.reassignment import (
    cancel,
    check_plan,
    generate_plan,
    progress,
    replica_sizes,
    start,
    verify,
    watch,
)
from odradek.operations.snapshot import ClusterSnapshot, take_snapshot
from odradek.operations.suggestion import did_you_mean
from odradek.operations.throttle import clear_throttles, set_throttles

__all__ = [
    "AT_END",
    "AT_START",
    "FORMATS",
    "Activity",
    "BrokerActivity",
    "BrokerSummary",
    "ClusterSnapshot",
    "Cost",
    "History",
    "JournalHistory",
    "Line",
    "MoveResult",
    "MoveState",
    "OffsetReset",
    "Onset",
    "Overview",
    "Plan",
    "Position",
    "Problem",
    "Progress",
    "ReplicationChange",
    "Severity",
    "TopicActivity",
    "TopicSummary",
    "Verification",
    "assess",
    "cancel",
    "check_plan",
    "clear_throttles",
    "compare",
    "cost_of",
    "did_you_mean",
    "elect",
    "generate_plan",
    "log_ranges",
    "plan_reset",
    "progress",
    "propose",
    "rate",
    "read_brokers",
    "read_history",
    "read_overview",
    "reader",
    "replica_sizes",
    "resolve",
    "set_throttles",
    "start",
    "take_snapshot",
    "verify",
    "watch",
    "writer",
]
