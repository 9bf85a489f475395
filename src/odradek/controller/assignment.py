"""Where a partition's replicas are, and where they are going.

While a partition moves, its assignment lists every replica it has or will have: the target first,
then what is left of the origin. `adding` and `removing` say which of them are only coming or only
going, so both ends of the move can be read from the one value, and a cancel knows the way back.
docs/spec/controller-and-replication.md section 4.7; KIP-455.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The replicas of one partition, in order of preference."""

    replicas: Sequence[int]
    adding: Sequence[int] = ()
    removing: Sequence[int] = ()

    def __post_init__(self) -> None:
        # Tuples, whatever the caller had: the value is shared and must not change under anybody.
        object.__setattr__(self, "replicas", tuple(self.replicas))
        object.__setattr__(self, "adding", tuple(self.adding))
        object.__setattr__(self, "removing", tuple(self.removing))

    @property
    def origin(self) -> tuple[int, ...]:
        """What the partition had before the move."""
        return _without(self.replicas, self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """What the partition has after the move."""
        return _without(self.replicas, self.removing)

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    def reassign_to(self, target: Iterable[int]) -> "ReplicaAssignment":
        """The assignment that moves this partition to `target`, from the origin it has now.

        A move under way is replaced, its origin kept. A mere reordering adds and removes nothing.
        """
        origin = self.origin
        wanted = tuple(target)
        full = tuple(dict.fromkeys((*wanted, *origin)))
        return ReplicaAssignment(full, _without(full, origin), _without(full, wanted))

    def without(self, replica: int) -> "ReplicaAssignment":
        """The same with one replica struck from every list."""
        gone = (replica,)
        return ReplicaAssignment(
            _without(self.replicas, gone),
            _without(self.adding, gone),
            _without(self.removing, gone),
        )

    def __str__(self) -> str:
        parts = [f"replicas={_plain(self.replicas)}"]
        if self.adding:
            parts.append(f"adding={_plain(self.adding)}")
        if self.removing:
            parts.append(f"removing={_plain(self.removing)}")
        return " ".join(parts)


def _without(ids: Iterable[int], struck: Sequence[int]) -> tuple[int, ...]:
    return tuple(id for id in ids if id not in struck)


def _plain(ids: Iterable[int]) -> str:
    return f"[{','.join(map(str, ids))}]"
