"""How descriptors are divided, and that connections keep to their share."""

from pathlib import Path

import pytest
from tests.broker.clusters import cluster, until

from odradek.broker.descriptors import divide_descriptors


@pytest.mark.parametrize(
    ("limit", "files", "connections"),
    [
        (None, 4096, 2**31 - 1),
        (1_000_000, 4096, 1_000_000 - 4096 - 512),
        (4096, 2048, 1536),
        (100, 50, 25),
        (1, 1, 1),
    ],
)
def test_shares(limit: int | None, files: int, connections: int) -> None:
    assert divide_descriptors(limit) == (files, connections)


async def test_connections_keep_to_their_share(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        connections = nodes.brokers[1].connections
        admission = connections.admission
        taken = admission.count
        connections.limit(taken + 1)
        await nodes.connect(1)
        await until(lambda: admission.is_full)
        nodes.brokers[1].config.set_dynamic({"max.connections": "1000"}, {})
        assert admission.is_full, "a setting cannot give what the system has not"
        connections.limit(taken + 2)
        assert not admission.is_full
