"""What holds for every test."""

import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from odradek.java import NoJava, find_java
from odradek.store.zookeeper_server import CannotStart, find_jars
from odradek.testing.cluster import Cluster

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs us in the background has us ignore Ctrl-C, and children inherit that; tests
    # that press it would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The same examples in every run, and no verdict that depends on how fast the machine is.
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("repeatable")

INTEROP = Path(__file__).parent / "interop"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Tests beside Apache Kafka run when they are asked for by path, as `make peers-test` does."""
    asked = (Path(config.invocation_params.dir, argument) for argument in config.args)
    if collection_path == INTEROP and not any(path.is_relative_to(INTEROP) for path in asked):
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without Java there is no Spark session: its tests are skipped, and say why."""
    try:
        find_java("Spark")
    except NoJava as error:
        missing = pytest.mark.skip(reason=str(error))
        for item in items:
            if item.get_closest_marker("spark"):
                item.add_marker(missing)


@pytest.fixture(scope="session")
def zookeeper_is_here() -> None:
    """Skips what needs a ZooKeeper where there is none. One that does not start is a failure."""
    try:
        find_java("ZooKeeper"), find_jars()
    except (NoJava, CannotStart) as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def planner_kernels(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The planner's loops, compiled once for all workers, and not in a process that Hypothesis
    traces: that takes twice as long."""
    from odradek.balance import compilation

    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (shared / "planner-kernels.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not compilation.is_compiled():
            assert compilation.compile_apart().wait() == 0


def assert_no_traceback(log: Path) -> None:
    text = log.read_text(errors="replace") if log.exists() else ""
    found = text.find("Traceback (most recent call last)")
    assert found < 0, f"{log}:\n{text[max(0, found - 2000) :][:6000]}"


@pytest.fixture(scope="session", autouse=True)
def no_broker_logs_a_traceback() -> Iterator[None]:
    """Whichever test starts a cluster, in whatever way, its brokers' logs are read at its end."""
    end_all = Cluster._end_all

    def end_all_and_read(cluster: Cluster) -> None:
        end_all(cluster)
        for broker in cluster.ids:
            assert_no_traceback(cluster.log_of(broker))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "_end_all", end_all_and_read)
        yield
