"""One coordinator on one partition of the offsets topic, in virtual time."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from odradek.coordinator.config import GroupConfig
from odradek.coordinator.coordinator import GroupCoordinator
from odradek.coordinator.group import CommittedOffset, Group, GroupState
from odradek.coordinator.state_topic import Appended
from odradek.sim.loop import SimLoop
from odradek.wire.batch import header_at, set_offset_and_epoch
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from odradek.wire.reply import Reply
from odradek.wire.topics import TopicPartition

NOW = 1_700_000_000_000
T0 = TopicPartition("t", 0)


class MemoryLog:
    """One partition of the offsets topic; the tests of the broker run the same groups on logs."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.next_error = ErrorCode.NONE
        self.held: list[tuple[asyncio.Future[Appended], Appended]] | None = None

    def partition_count(self) -> int:
        return 1

    async def check_partition_count(self) -> None:
        pass

    def append(self, partition: int, batch: bytearray, timeout_ms: int) -> Any:
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        error, self.next_error = self.next_error, ErrorCode.NONE
        if not error:
            set_offset_and_epoch(batch, 0, self.end_offset, 0)
            self.end_offset = header_at(batch).next_offset
            self.batches.append(bytes(batch))
            appended = Appended(error, header_at(batch).base_offset)
        else:
            appended = Appended(error)
        if self.held is None:
            future.set_result(appended)
        else:
            self.held.append((future, appended))
        return future

    def release(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """What was held is on every replica now, or never will be."""
        held, self.held = self.held or [], None
        for future, appended in held:
            if not future.done():
                future.set_result(Appended(error) if error else appended)

    def read(self, partition: int) -> Iterator[bytes]:
        yield from list(self.batches)


class World:
    def __init__(self, **config: Any) -> None:
        self.loop = SimLoop()
        self.log = MemoryLog()
        self.config = GroupConfig(**config)
        self.groups = self.coordinator()

    def coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(
            self.log,
            self.config,
            clock=lambda: NOW + int(self.loop.time() * 1000),
            rng=random.Random(1),
        )

    def run(self, story: Callable[["World"], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            await self.elect()
            await story(self)

        self.loop.run_until_complete(whole())
        assert self.loop.failures == []
        self.loop.close()

    async def elect(self, epoch: int = 0) -> None:
        self.groups.on_elected(0, epoch)
        await asyncio.sleep(0.001)
        assert self.groups.check("g") is ErrorCode.NONE

    def join(self, member: str = "", version: int = 3, **more: Any) -> "asyncio.Future[Any]":
        protocols = more.pop("protocols", {"range": b"", "roundrobin": b""})
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=more.pop("session_ms", 10_000),
            rebalance_timeout_ms=more.pop("rebalance_ms", 30_000),
            member_id=member,
            protocol_type=more.pop("protocol_type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols.items()],
            **more,
        )
        return self.future(self.groups.join(request, version, "client", "/127.0.0.1"))

    def sync(self, joined: JoinGroupResponse, **assignments: bytes) -> "asyncio.Future[Any]":
        request = SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=m, assignment=a)
                for m, a in assignments.items()
            ],
        )
        return self.future(self.groups.sync(request))

    def future(self, reply: Reply[Any]) -> "asyncio.Future[Any]":
        return asyncio.ensure_future(reply.result(), loop=self.loop)

    def beat(self, joined: JoinGroupResponse, instance: str | None = None) -> ErrorCode:
        return self.groups.heartbeat(
            HeartbeatRequest(
                group_id="g",
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                group_instance_id=instance,
            )
        )

    @property
    def group(self) -> Group:
        group = self.groups.storage.get("g")
        assert group is not None
        return group

    async def stable(self, count: int = 1, **more: Any) -> list[JoinGroupResponse]:
        """A stable group of so many members; the leader first."""
        joining = [self.join(**more) for _ in range(count)]
        joined = [await one for one in joining]
        joined.sort(key=lambda j: j.leader != j.member_id)
        syncing = [self.sync(j) for j in joined[1:]]
        parts = {j.member_id: b"work-%d" % i for i, j in enumerate(joined)}
        leader_sync = self.sync(joined[0], **parts)
        assert (await leader_sync).assignment == b"work-0"
        assert [(await s).assignment for s in syncing] == [parts[j.member_id] for j in joined[1:]]
        assert self.group.state is GroupState.STABLE
        return joined


async def commit(
    world: World,
    generation: int,
    member: str,
    offsets: dict[TopicPartition, int],
    metadata: str = "",
) -> dict[TopicPartition, ErrorCode]:
    return await world.groups.offsets.commit(
        "g",
        generation,
        member,
        None,
        {tp: CommittedOffset(o, metadata, NOW) for tp, o in offsets.items()},
    )


def offsets_in(world: World) -> dict[TopicPartition, int]:
    """What group g has committed."""
    _, found = world.groups.offsets.fetch("g", None)
    return {tp: at.offset for tp, at in found.items() if isinstance(at, CommittedOffset)}
