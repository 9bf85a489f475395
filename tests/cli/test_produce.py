"""What `produce` reads and how it ends, without a cluster."""

import pytest

from odradek.cli.formats import Line
from odradek.cli.produce import _send
from odradek.client import Client, Producer


async def test_a_failure_is_told_before_more_is_sent() -> None:
    class Failed(Producer):
        def raise_failure(self) -> None:
            raise ConnectionError("the brokers are gone")

    producer = Failed(Client("h:1"))
    with pytest.raises(ConnectionError, match="the brokers are gone"):
        await _send(producer, "t", Line(b"v"), Line(None, partition=0))
    assert producer.statistics()["records"] == 0
