"""The pytest plugin: a really replicated cluster for tests, and the log of each broker on failure.

    def test_failover(odradek_cluster):                  # 3 brokers, one cluster for the module
        odradek_cluster.kill(odradek_cluster.leader("orders"))

    @pytest.mark.odradek(brokers=1, config={"log.retention.ms": 1000})
    def test_alone(odradek_fresh_cluster):               # one cluster for this test
        ...

The marker takes what `odradek.Cluster` takes. `odradek_cluster` honours it on the module
(`pytestmark`), `odradek_fresh_cluster` also on a class or test. Faults are enabled. docs/testing.md
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from odradek.testing.cluster import Cluster

MARKER = "odradek"
FIXTURES = ("odradek_cluster", "odradek_fresh_cluster")
LOG_LINES_SHOWN = 40


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(brokers=3, racks=None, config=None, store='sqlite'): the cluster that the "
        "fixtures odradek_cluster (on a module) and odradek_fresh_cluster give",
    )


@pytest.fixture(scope="module")
def odradek_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A running cluster, fresh for each test module; 3 brokers unless the module is marked."""
    yield from _cluster(request.node)


@pytest.fixture
def odradek_fresh_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A running cluster for this test alone; 3 brokers unless it is marked."""
    yield from _cluster(request.node)


def _cluster(node: pytest.Item) -> Iterator[Cluster]:
    from odradek.testing.cluster import Cluster

    wanted: dict[str, Any] = {"faults": True}
    for marker in reversed(list(node.iter_markers(MARKER))):  # the closest last, and so it wins
        wanted.update(marker.kwargs)
    with Cluster(**wanted) as cluster:
        yield cluster


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A mark that nothing would come of is a mistake; say so."""
    own = [marker for marker in item.own_markers if marker.name == MARKER]
    if own and FIXTURES[1] not in getattr(item, "fixturenames", ()):
        raise pytest.UsageError(
            f"{item.nodeid}: a test's own {MARKER} marker needs the fixture {FIXTURES[1]}; "
            f"{FIXTURES[0]} is shared by the module and takes the module's pytestmark"
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report of a failed test includes the end of each broker's log."""
    report = yield
    if report.failed:
        for name in FIXTURES:
            cluster: Cluster | None = getattr(item, "funcargs", {}).get(name)
            for broker in cluster.ids if cluster is not None else ():
                path = cluster.log_of(broker)  # type: ignore[union-attr]  # it has brokers
                if path.exists():
                    lines = path.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
                    report.sections.append((f"odradek broker {broker}", "\n".join(lines)))
    return report
