"""`make bench ONLY=...`: what it names are benchmarks, and none of them takes it for its own."""

import sys
from pathlib import Path

import pytest
from benchmarks import __main__, hostile, log
from tests.broker.clusters import cluster, produce, until


def test_a_benchmark_named_among_others_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    monkeypatch.setattr(log, "measure", measured.append)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "wire", "log"])
    __main__.run(["log"])
    assert len(measured) == 1


def test_a_benchmark_that_there_is_not_is_named() -> None:
    with pytest.raises(SystemExit, match="no benchmark logs; there are admin, "):
        __main__.run(["log", "logs"])


async def test_attacks_reach_a_broker_that_keeps_serving(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that need no other process or much memory; the script has them all."""
    async with cluster(tmp_path) as made:
        for topic in (hostile.PROBE, hostile.BULK):
            await made.create_topic(topic, partitions=hostile.PARTITIONS)
        broker = made.brokers[1]
        address = (broker.endpoints[0].host, broker.endpoints[0].port)
        epoch = broker.controller.epoch
        sockets = hostile.Sockets()
        for name in ("claims", "unread", "parked", "control", "poison"):
            await hostile.ATTACKS[name]([address], 0, sockets)
        await until(lambda: broker.connections.statistics()["connections"] > 600)
        await until(lambda: caplog.text.count("control request from 127.0.0.1") == 6)
        well = await made.connect(1)
        assert (await produce(well, hostile.PROBE, b"value")).error_code == 0
        assert broker.controller.is_active and broker.controller.epoch == epoch
        sockets.close()
