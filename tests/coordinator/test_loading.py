"""A broker wins partitions of the offsets topic, and loses some before it has read them."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from tests.coordinator.world import NOW

from odradek.coordinator.config import GroupConfig
from odradek.coordinator.coordinator import GroupCoordinator
from odradek.sim.loop import SimLoop
from odradek.wire.errors import ErrorCode

PARTITIONS = 3
PIECES = 4


def group_in(partition: int) -> str:
    """A group whose home is this partition: Java's hash of one letter is the letter."""
    return next(letter for letter in "abc" if ord(letter) % PARTITIONS == partition)


class LongLog:
    """Partitions of several pieces, and in which order these were read."""

    def __init__(self) -> None:
        self.read_from: list[int] = []
        self.broken: set[int] = set()

    def partition_count(self) -> int:
        return PARTITIONS

    async def check_partition_count(self) -> None:
        pass

    def append(self, partition: int, batch: bytearray, timeout_ms: int) -> Any:
        raise NotImplementedError

    def read(self, partition: int) -> Iterator[bytes]:
        for _ in range(PIECES):
            self.read_from.append(partition)
            if partition in self.broken:
                raise OSError("gone")
            yield b""


def run(story: Callable[[GroupCoordinator, LongLog], Coroutine[Any, Any, None]]) -> None:
    loop = SimLoop()
    log = LongLog()
    groups = GroupCoordinator(log, GroupConfig(), clock=lambda: NOW, rng=random.Random(1))
    loop.run_until_complete(story(groups, log))
    assert loop.failures == []
    loop.close()


def statuses(groups: GroupCoordinator) -> list[ErrorCode]:
    return [groups.check(group_in(partition)) for partition in range(PARTITIONS)]


async def turns(log: LongLog, count: int) -> None:
    """The loop turns so often, and each time a piece is read."""
    for _ in range(count):
        before = len(log.read_from)
        await asyncio.sleep(0)
        assert len(log.read_from) == before + 1


def test_partitions_are_loaded_one_after_the_other_a_piece_in_each_turn_of_the_loop() -> None:
    async def story(groups: GroupCoordinator, log: LongLog) -> None:
        for partition in range(PARTITIONS):
            groups.on_elected(partition, 0)
        assert statuses(groups) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3
        await turns(log, PIECES)
        await asyncio.sleep(0.001)
        assert log.read_from == [0] * PIECES + [1] * PIECES + [2] * PIECES
        assert statuses(groups) == [ErrorCode.NONE] * 3

    run(story)


def test_one_that_cannot_be_loaded_does_not_keep_the_others() -> None:
    async def story(groups: GroupCoordinator, log: LongLog) -> None:
        log.broken = {0}
        for partition in range(PARTITIONS):
            groups.on_elected(partition, 0)
        await asyncio.sleep(0.001)
        assert statuses(groups) == [ErrorCode.NOT_COORDINATOR, ErrorCode.NONE, ErrorCode.NONE]

    run(story)


def test_what_is_lost_while_it_waits_or_is_read_is_not_loaded() -> None:
    async def story(groups: GroupCoordinator, log: LongLog) -> None:
        for partition in range(PARTITIONS):
            groups.on_elected(partition, 0)
        await turns(log, 2)
        groups.on_resigned(0)
        groups.on_resigned(1)
        await asyncio.sleep(0.001)
        assert log.read_from == [0, 0] + [2] * PIECES
        lost = ErrorCode.NOT_COORDINATOR
        assert statuses(groups) == [lost, lost, ErrorCode.NONE]

    run(story)


def test_what_is_lost_before_its_load_began_is_not_loaded() -> None:
    async def story(groups: GroupCoordinator, log: LongLog) -> None:
        groups.on_elected(0, 0)
        groups.on_resigned(0)
        await asyncio.sleep(0.001)
        assert (log.read_from, statuses(groups)[0]) == ([], ErrorCode.NOT_COORDINATOR)

    run(story)


def test_what_is_lost_and_won_again_is_loaded_from_the_beginning() -> None:
    async def story(groups: GroupCoordinator, log: LongLog) -> None:
        groups.on_elected(0, 0)
        groups.on_elected(1, 0)
        await turns(log, 2)
        for partition in range(2):
            groups.on_resigned(partition)
            groups.on_elected(partition, 2)
        await asyncio.sleep(0.001)
        assert log.read_from == [0, 0] + [0] * PIECES + [1] * PIECES
        assert statuses(groups)[:2] == [ErrorCode.NONE] * 2

    run(story)


def test_a_broker_that_stops_meanwhile_loads_no_more() -> None:
    async def story(groups: GroupCoordinator, log: LongLog) -> None:
        for partition in range(PARTITIONS):
            groups.on_elected(partition, 0)
        await turns(log, 2)
        groups.close()
        await asyncio.sleep(0.001)
        assert log.read_from == [0, 0]
        assert statuses(groups) == [ErrorCode.NOT_COORDINATOR] * 3

    run(story)
