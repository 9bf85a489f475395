"""What the interchange tests share: one ZooKeeper and one JVM of tools for all of them.

Each test has its own chroot, so that clusters are new without a new ZooKeeper. `make peers-test`
collects them; `make test` does not.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.interop.harness.complaints import complaints
from tests.interop.harness.kafka import KAFKA_3_9, is_here
from tests.interop.harness.mixed import Kind, MixedCluster
from tests.interop.harness.toolbox import Toolbox

from odradek.store.zookeeper_server import ZooKeeperServer

MakeCluster = Callable[..., MixedCluster]
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = not is_here()
    for item in items:
        item.add_marker(pytest.mark.peers)
        item.add_marker(pytest.mark.timeout(600))
        if missing:
            item.add_marker(pytest.mark.skip(reason="Apache Kafka is not here: run `make peers`"))


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), port=0, tick_ms=500)
    server.start()
    yield server.address
    server.stop()


@pytest.fixture(scope="session")
def tools() -> Iterator[Toolbox]:
    with Toolbox() as toolbox:
        yield toolbox


@pytest.fixture
def make_cluster(zookeeper: str, tmp_path: Path) -> Iterator[MakeCluster]:
    """Makes clusters that end with the test, in which nobody may complain of the other program."""
    with ExitStack() as stack:

        def make(
            members: Mapping[int, Kind], *, kafka: Path = KAFKA_3_9, **settings: object
        ) -> MixedCluster:
            number = next(_numbers)
            names = {name.replace("_", "."): value for name, value in settings.items()}
            home = tmp_path / f"cluster-{number}"
            home.mkdir()
            cluster = MixedCluster(
                f"{zookeeper}/cluster-{number}", home, members, names, kafka=kafka
            )
            return stack.enter_context(cluster)

        yield make
    shared = {log.parent for log in tmp_path.rglob("*.odradek.log")}
    found = [complaint for home in shared for complaint in complaints(home)]
    assert not found, f"{len(found)} complaints, such as:\n" + "\n".join(found[:5])
