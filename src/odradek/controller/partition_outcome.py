"""What the controller answers for one partition of a request: a code and, for people, a reason."""

from typing import NamedTuple

from odradek.wire.errors import ErrorCode


class PartitionOutcome(NamedTuple):
    error: ErrorCode
    message: str = ""
    leader: int = -1  # the elected leader, where an election was requested


SUCCESS = PartitionOutcome(ErrorCode.NONE)
