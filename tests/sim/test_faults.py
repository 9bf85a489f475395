"""When a fault may be injected: no more copies are lost than the cluster tolerates."""

import asyncio

from odradek.sim.faults import FaultInjector
from odradek.sim.world import World


def test_nothing_is_destroyed_while_a_broker_is_stopping() -> None:
    """It leaves its ISRs before it is down, and the last member may be one that lost its tail."""

    async def story(world: World) -> list[bool]:
        injector = FaultInjector(world)
        while not injector._may_destroy():  # noqa: ASYNC110  # looks
            await asyncio.sleep(0.1)
        stopping = asyncio.ensure_future(world.hosts[2].stop())
        await asyncio.sleep(0)
        assert world.hosts[2].is_up
        allowed = [injector._may_destroy()]
        await stopping
        allowed.append(injector._may_destroy())
        world.hosts[2].start()
        while not injector._may_destroy():  # noqa: ASYNC110  # looks
            await asyncio.sleep(0.1)
        return allowed

    assert World(1, 3).run(story) == [False, False]
