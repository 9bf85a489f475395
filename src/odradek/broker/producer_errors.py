"""Errors of transactions in the words of the version that is asked with."""

from odradek.wire.errors import ErrorCode

__all__ = ["downgraded"]


def downgraded(error: ErrorCode, version: int, fenced_since: int) -> ErrorCode:
    """Older clients know INVALID_PRODUCER_EPOCH only."""
    if error is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
