"""The kinds of change that a plan can be of; each module has those of one part of the cluster."""

from collections.abc import Mapping

from odradek.console.changes import configs, drills, groups, moves, records, security, topics
from odradek.console.plans import Kind

KINDS: Mapping[str, Kind] = {
    **topics.KINDS,
    **configs.KINDS,
    **groups.KINDS,
    **moves.KINDS,
    **records.KINDS,
    **security.KINDS,
    **drills.KINDS,
}
