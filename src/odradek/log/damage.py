"""Damage to logs: records that were on disk and are not any more, as far as this broker can tell.

Found when logs are loaded, or when a log contradicts itself while it is used. The broker gives up
its places in the ISRs of damaged replicas before it registers: another replica leads, and this one
copies what it lost. A replica that no other can replace stays offline, or refuses to lead.
"""

from typing import NamedTuple


class DamagedLog(Exception):
    """A log that lost what only another replica, or a backup, can give back. Nothing of it was
    removed; the message names the file."""


class Damage(NamedTuple):
    """What happened to one log."""

    reason: str
    # Where the log ended when it was last known to be whole.
    reached: int
    # The directory, if the log is left there as it is and cannot be used.
    unusable: str | None = None
    # Whether a copy of the leader's log would be any better.
    can_be_copied: bool = True
