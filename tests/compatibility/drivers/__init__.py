"""Today's clients behind one face, so that every feature is one test over all of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

Headers = tuple[tuple[str, bytes | None], ...]


class Sent(NamedTuple):
    """A record to produce."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class Got(NamedTuple):
    """A record that was consumed."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Placement(NamedTuple):
    """Where a partition is, as a client sees it."""

    leader: int
    replicas: list[int]
    isr: list[int]


class Unsupported(Exception):
    """What this client cannot do, and why: a row of the table, not a failure."""


def nothing() -> None:
    """What happens between the halves of most runs."""


class Driver(Protocol):
    """One client. `client_id` names it in the brokers' request logs."""

    name: str

    def __init__(self, bootstrap: str, client_id: str) -> None: ...

    def version(self) -> str: ...

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        idempotent: bool = False,
        between: Callable[[], None] = nothing,
    ) -> None:
        """Produce with acks=all and one producer; `between` runs after the first half arrived."""

    def consume(self, topic: str, starts: Mapping[int, int], count: int) -> list[Got]: ...

    def seek(self, topic: str, first: int, then: int) -> list[int]:
        """Of partition 0, the offset read first, and the one read after seeking."""

    def pause(self, topic: str) -> tuple[set[int], set[int]]:
        """The partitions that records came of while 0 was paused, and after it was resumed."""

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int: ...

    def member_command(self, group: str, topic: str, session_ms: int) -> list[str]:
        """A process that joins a group and tells of it in lines of JSON (members.py)."""

    # Administration

    def create_topic(self, topic: str, partitions: int, copies: int) -> None: ...

    def topics(self) -> set[str]: ...

    def describe(self, topic: str) -> dict[int, Placement]: ...

    def add_partitions(self, topic: str, count: int) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def set_config(self, topic: str, name: str, value: str) -> None: ...

    def config(self, topic: str, name: str) -> str: ...

    def groups(self) -> set[str]: ...

    def group_offset(self, group: str, topic: str, partition: int) -> int: ...

    def delete_group(self, group: str) -> None: ...

    def delete_records(self, topic: str, partition: int, before: int) -> None: ...
