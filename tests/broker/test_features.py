"""`/feature` as brokers follow it, and what ApiVersions shows. docs/spec/protocol-ladder.md 6.3."""

import json
from pathlib import Path

from odradek.broker.features import FeatureFollower
from odradek.store.memory import MemoryStore
from odradek.wire.connection import Connection
from odradek.wire.messages.api_versions import ApiVersionsRequest

from .clusters import cluster, until


async def shown(connection: Connection, version: int = 4) -> int:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    response = await connection.request(request, version)
    assert response.supported_features == response.finalized_features == []
    epoch: int = response.finalized_features_epoch
    return epoch


async def epoch_is(features: FeatureFollower, epoch: int) -> None:
    await until(lambda: features.epoch == epoch)


async def test_the_epoch_of_the_features_is_shown_from_2_7_on(tmp_path: Path) -> None:
    """Acceptance 28, the brokers' side; and how each registers."""
    for text, epoch, version in (("2.6", -1, 4), ("2.7-IV0", 0, 5), ("3.9", 0, 5)):
        async with cluster(tmp_path / text, inter_broker_protocol_version=text) as made:
            connection = await made.connect(1)
            features = made.brokers[1].followers.features
            await epoch_is(features, epoch)
            assert [await shown(connection, asked) for asked in (0, 3, 4)] == [-1, epoch, epoch]
            session = MemoryStore(made.server)
            await session.start()
            registration = json.loads((await session.get("/brokers/ids/1"))[0] or b"")
            assert registration["version"] == version, text
            assert ("features" in registration) is (version == 5), text
            if epoch >= 0:
                await session.set("/feature", (await session.get("/feature"))[0])
                await epoch_is(features, 1)
                await session.set("/feature", b"")
                await epoch_is(features, -1)
                assert await shown(connection) == -1
            await session.close()
