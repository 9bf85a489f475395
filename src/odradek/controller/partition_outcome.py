"""What the controller answers for one partition of a request: a code and, for people, a reason."""

from typing import NamedTuple

from odradek.wire.errors import ErrorCode


class PartitionOutcome(NamedTuple):
    error: ErrorCode
    message: str = ""
    leader: int = -1  # who was elected, where an election was asked for


SUCCESS = PartitionOutcome(ErrorCode.NONE)
