"""Which ports the clusters of one process get: none that another may want back; and who runs."""

import itertools
from pathlib import Path

import pytest

from odradek import Cluster
from odradek.testing import cluster


@pytest.fixture(autouse=True)
def nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where brokers were killed, or are not started yet."""
    monkeypatch.setattr(cluster, "_is_free", lambda port: True)


def ports(of: Cluster) -> set[int]:
    return {of.port_of(broker) for broker in of.ids}


def test_clusters_of_one_process_share_no_port(tmp_path: Path) -> None:
    first, second = Cluster(3, data_dir=tmp_path / "1"), Cluster(3, data_dir=tmp_path / "2")
    named = Cluster(1, data_dir=tmp_path / "3", ports=[max(ports(second)) + 1])
    last = Cluster(3, data_dir=tmp_path / "4")
    assert len(ports(first) | ports(second) | ports(named) | ports(last)) == 10
    for made in (first, second, named, last):
        made.close()


def test_the_ports_of_a_closed_cluster_are_the_last_to_be_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that outlives its cluster must not find the next one in its place."""
    monkeypatch.setattr(cluster, "_candidates", itertools.cycle(range(20_000, 20_007)))
    seen = []
    for number in range(3):
        made = Cluster(3, data_dir=tmp_path / str(number))
        seen.append(ports(made))
        made.close()
    assert seen == [{20_000, 20_001, 20_002}, {20_003, 20_004, 20_005}, {20_006, 20_000, 20_001}]


def test_who_runs_can_be_asked_while_brokers_start(tmp_path: Path) -> None:
    made = Cluster(2, data_dir=tmp_path)

    class Process:
        def poll(self) -> None:
            """Alive; and meanwhile another thread has started the next."""
            made._processes[len(made._processes) + 1] = Process()  # type: ignore[assignment]

    made._processes[1] = Process()  # type: ignore[assignment]
    assert made.running() == [1]
    made._processes.clear()
    made.close()
