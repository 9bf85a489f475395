"""What tests of the client share."""

from collections.abc import Iterator

import pytest

from odradek.sim.loop import SimLoop


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    """A loop in virtual time, for tests in which something waits."""
    loop = SimLoop()
    yield loop
    loop.close()
