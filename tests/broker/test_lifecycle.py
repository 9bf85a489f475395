"""Starting, stopping, losing the session, and everything that can keep a broker from starting."""

import asyncio
import shutil
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.broker.clusters import Cluster, cluster, fetch_request, produce, until

from odradek.broker import controlled_shutdown
from odradek.broker.config import BrokerConfig
from odradek.broker.server import Broker, StartFailed
from odradek.log.disk import RealDisk
from odradek.log.offload import on_the_spot
from odradek.replica.checkpoints import HighWatermarkCheckpoints
from odradek.store import paths
from odradek.store.cluster import ClusterStore
from odradek.store.memory import MemoryServer, MemoryStore
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.topics import TopicPartition


async def test_a_stop_hands_leaderships_over_first(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=3) as made:
        await made.create_topic("t", partitions=6, replicas=3)
        of = TopicPartition("t", 0)
        leader = made.controller.cache.partitions("t")[0].leader
        connection = await made.connect(leader)
        assert (await produce(connection, "t", b"kept")).error_code == ErrorCode.NONE
        await made.stop(leader)
        cache = next(iter(made.brokers.values())).cache
        await until(lambda: cache.partitions("t")[0].leader not in (leader, -1))
        assert all(info.leader != leader for info in cache.partitions("t").values())
        new = cache.partitions("t")[0].leader
        assert new != leader
        other = await made.connect(new)
        await until(lambda: made.brokers[new].replicas.partitions[of].is_leader)
        response = await other.request(fetch_request("t"), 11)
        assert response.responses[0].partitions[0].high_watermark == 1
        back = await made.start(leader)
        await until(
            lambda: leader in made.brokers[new].replicas.partitions[of].leader.isr.committed
        )
        assert back.logs.logs[of].end_offset == 1


async def dies_before_it_registers(
    made: Cluster, victim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: object, **__: object) -> None:
        raise StartFailed("killed before it registered")

    with monkeypatch.context() as patched:
        patched.setattr(ClusterStore, "register_broker", die)
        with pytest.raises(StartFailed):
            await made.start(victim)


async def dies_before_it_writes_down_what_it_lost(
    made: Cluster, victim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its logs are opened by then. What a killed process leaves is what its disk has."""
    disk, left = made.directory / str(victim), made.directory / "left"
    write = HighWatermarkCheckpoints.write

    def leave_first(checkpoints: HighWatermarkCheckpoints) -> None:
        live = checkpoints._on_disk._dirs.live
        is_victim = any(Path(path).is_relative_to(disk) for path in live)
        if is_victim and checkpoints._partitions and not left.exists():
            shutil.copytree(disk, left)
        write(checkpoints)

    with monkeypatch.context() as patched:
        patched.setattr(HighWatermarkCheckpoints, "write", leave_first)
        await made.start(victim)
        await until(left.exists)
        await made.stop(victim)
    shutil.rmtree(disk)
    left.rename(disk)


@pytest.mark.parametrize(
    "dies", [dies_before_it_registers, dies_before_it_writes_down_what_it_lost]
)
async def test_an_empty_disk_is_remembered_however_early_the_next_run_ends(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    dies: Callable[[Cluster, int, pytest.MonkeyPatch], Awaitable[None]],
) -> None:
    """It comes back as the last in-sync replica: neither then nor later does it lead with nothing,
    and the other keeps what was acknowledged."""
    async with cluster(tmp_path, brokers=3) as made:
        await made.create_topic("t", partitions=3, replicas=2)
        number, info = next(
            (number, info)
            for number, info in made.controller.cache.partitions("t").items()
            if made.controller.id not in info.replicas
        )
        of, victim = TopicPartition("t", number), info.leader
        (other,) = set(info.replicas) - {victim}
        written = await produce(await made.connect(victim), "t", b"kept", partition=number)
        assert written.error_code == ErrorCode.NONE
        await made.stop(other)
        await made.stop(victim)
        shutil.rmtree(tmp_path / str(victim))
        kept = (await made.start(other)).logs.logs[of]
        await dies(made, victim, monkeypatch)
        caplog.clear()
        back = await made.start(victim)
        await until(lambda: f"{of}: refuses to lead in leader epoch" in caplog.text)
        assert not back.replicas.partitions[of].is_leader
        assert kept.end_offset == 1


async def test_a_broker_serves_once_it_knows_topics_and_not_only_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new controller tells of the brokers first."""
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        await made.stop(1)
        broker = await made.start(1)
        broker.readiness._informed.clear()
        with monkeypatch.context() as patched:
            patched.setattr(broker.cache, "topics", list)
            broker.metadata_updated([])
            assert not broker.readiness._informed.is_set()
        broker.metadata_updated([])
        assert broker.readiness._informed.is_set()


async def test_a_stop_does_not_wait_for_ever(tmp_path: Path) -> None:
    """A single replica cannot be handed over; nobody waits for that."""
    async with cluster(tmp_path, brokers=2) as made:
        await made.create_topic("t", partitions=4, replicas=1)
        other = next(each for each in made.brokers if each != made.controller.id)
        await asyncio.wait_for(made.stop(other), 60)
        await asyncio.wait_for(made.stop(made.controller.id), 60)


async def test_a_stop_that_finds_no_controller_waits_no_longer_than_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controlled_shutdown, "LOOK_S", 0.0)
    async with cluster(tmp_path, brokers=2, controlled_shutdown_retry_backoff_ms="60000") as made:
        await made.create_topic("t", replicas=2)
        node = made.controller.store.controller
        found, looks = node.id, 0

        async def vacant_at_first() -> int | None:
            nonlocal looks
            looks += 1
            return None if looks < 5 else await found()

        monkeypatch.setattr(node, "id", vacant_at_first)
        await asyncio.wait_for(made.stop(made.controller.id), 60)
        assert looks >= 5


async def test_a_stop_does_not_wait_for_a_store_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controlled_shutdown, "STORE_TIMEOUT_S", 0.05)
    async with cluster(tmp_path, brokers=2) as made:
        silent = made.controller.store.session
        assert isinstance(silent, MemoryStore)

        async def never(*_: object) -> None:
            await asyncio.get_running_loop().create_future()

        for verb in ("get", "set", "children", "exists", "multi"):
            monkeypatch.setattr(silent, verb, never)
        await asyncio.wait_for(made.stop(made.controller.id), 60)


async def test_a_lost_session_is_registered_again(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=3) as made:
        await made.create_topic("t", replicas=3)
        for victim in (made.controller, made.controller):
            before = victim.epoch
            store = victim.store.session
            assert isinstance(store, MemoryStore)
            made.server.expire(store)
            await registered_after(victim, before)
            await until(
                lambda: all(len(each.cache.brokers()) == 3 for each in made.brokers.values())
            )
            await until(lambda: any(each.controller.is_active for each in made.brokers.values()))
            await produced_in_the_end(made, "t")


async def produced_in_the_end(made: Cluster, topic: str) -> None:
    """Asks whoever leads now, and again if that has changed meanwhile."""
    for _ in range(200):
        leader = next(iter(made.brokers.values())).cache.partitions(topic)[0].leader
        if leader in made.brokers:
            connection = await made.connect(leader)
            answer = await produce(connection, topic, b"v")
            connection.close()
            if answer.error_code == ErrorCode.NONE:
                return
        await asyncio.sleep(0.01)
    raise AssertionError("nobody takes a record")


async def start_failure(made_store: MemoryStore, directory: Path, **settings: str) -> str:
    written = {name.replace("_", "."): value for name, value in settings.items()}
    broker = Broker(
        BrokerConfig(
            {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory), **written}
        ),
        made_store,
        disk=RealDisk(),
        clock=lambda: 0,
        rng=Random(1),
        offload=on_the_spot,
    )
    with pytest.raises(StartFailed) as caught:
        await broker.start()
    await broker.abandon()
    return str(caught.value)


async def test_a_cluster_that_moves_to_kraft_is_not_joined(tmp_path: Path) -> None:
    server = MemoryServer()
    migrating = MemoryStore(server)
    await migrating.start()
    controller = b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":7}'
    await migrating.create(paths.CONTROLLER, controller)
    message = await start_failure(MemoryStore(server), tmp_path / "data")
    assert "is being migrated to KRaft" in message
    assert await migrating.children("/") == [paths.CONTROLLER.strip("/")], "nothing was written"


async def test_listeners_that_are_advertised_otherwise_or_not_at_all(tmp_path: Path) -> None:
    async with cluster(
        tmp_path,
        listeners="CLIENTS://127.0.0.1:0,LOCAL://0.0.0.0:0,INTERNAL://127.0.0.1:0",
        advertised_listeners="CLIENTS://127.0.0.1:0,INTERNAL://:0",
        inter_broker_listener_name="clients",
        listener_security_protocol_map="CLIENTS:PLAINTEXT,LOCAL:PLAINTEXT,INTERNAL:PLAINTEXT",
    ) as made:
        clients, internal = made.brokers[1].endpoints
        assert (clients.listener, clients.host) == ("CLIENTS", "127.0.0.1")
        assert (internal.listener, internal.host) == ("INTERNAL", socket.gethostname())
        connection = await made.connect(1)
        known = await connection.request(MetadataRequest(topics=[]), 9)
        assert [(broker.host, broker.port) for broker in known.brokers] == [clients[:2]]
        assert known.controller_id == 1


async def test_what_keeps_a_broker_from_starting(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:

        def store() -> MemoryStore:
            return MemoryStore(made.server)

        port = made.brokers[1].endpoints[0].port
        taken = await start_failure(
            store(), tmp_path / "a", broker_id="2", listeners=f"PLAINTEXT://127.0.0.1:{port}"
        )
        assert "cannot listen" in taken
        same = await start_failure(
            store(),
            tmp_path / "b",
            broker_id="2",
            advertised_listeners=f"PLAINTEXT://127.0.0.1:{port}",
        )
        assert "same address" in same
        locked = await start_failure(store(), tmp_path / "1", broker_id="2")
        assert "1" in locked
        twin = await start_failure(
            store(), tmp_path / "c", broker_id="1", zookeeper_session_timeout_ms="50"
        )
        assert "broker id 1 is in use" in twin
        strange = tmp_path / "d"
        (strange / "not a partition").mkdir(parents=True)
        foreign = await start_failure(store(), strange, broker_id="3")
        assert "not a partition" in foreign
        other = tmp_path / "e"
        other.mkdir()
        (other / "meta.properties").write_text("version=0\nbroker.id=3\ncluster.id=another\n")
        assert "another" in await start_failure(store(), other, broker_id="3")
        unnamed = await start_failure(store(), tmp_path / "f", broker_id_generation_enable="false")
        assert "broker.id is not set" in unnamed
        connection = await made.connect(1)
        assert (await connection.request(MetadataRequest(topics=[]), 9)).brokers


class Expiring(MemoryStore):
    """Its session ends behind the n-th thing that is asked of it."""

    def __init__(self, server: MemoryServer, after: int) -> None:
        super().__init__(server)
        self.left = after
        self._ended = False

    async def _ask(self, work: Callable[[Any], Any]) -> Any:
        self.left -= 1
        if self.left == 0:
            self._ended = True
            self._server.expire(self)
        return await super()._ask(work)

    @property
    def has_expired(self) -> bool:
        return self._ended


async def registered_after(broker: Broker, epoch: int) -> None:
    await until(lambda: broker.epoch > epoch)


async def owned_by(server: MemoryServer, path: str, store: MemoryStore) -> None:
    await until(lambda: _owner(server, path) == store.session_id)


def _owner(server: MemoryServer, path: str) -> int | None:
    stat = server.tree.exists(path)
    return None if stat is None else stat.owner


async def test_a_session_that_ends_at_any_step_of_the_start(tmp_path: Path) -> None:
    """The broker says so and ends, or is registered in its next session: never running unseen."""
    async with cluster(tmp_path) as made:
        for step in range(1, 200):
            store = Expiring(made.server, step)
            broker = Broker(
                BrokerConfig(
                    {
                        "broker.id": "2",
                        "listeners": "PLAINTEXT://127.0.0.1:0",
                        "log.dirs": str(tmp_path / f"two-{step}"),
                    }
                ),
                store,
                disk=RealDisk(),
                clock=lambda: 0,
                rng=Random(1),
                offload=on_the_spot,
            )
            try:
                await broker.start()
            except StartFailed:
                await broker.abandon()
                continue
            await owned_by(made.server, "/brokers/ids/2", store)
            through = not store.has_expired
            await broker.stop()
            if through:
                return
        raise AssertionError("a start does not take that many steps")


async def test_a_broker_without_an_id_is_given_one_and_keeps_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        broker = await made.start(-1)
        assert broker.id == 1001
        made.brokers[1001] = made.brokers.pop(-1)
        await made.stop(1001)
        again = await made.start(-1)
        made.brokers[1001] = made.brokers.pop(-1)
        assert again.id == 1001


async def test_statistics_of_everything(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        connection = await made.connect(1)
        await produce(connection, "t", b"v")
        statistics: dict[str, Any] = made.brokers[1].statistics()
        assert statistics["connections"]["requests"]["Produce"] == 1
        assert statistics["controller"]["active"] is True
