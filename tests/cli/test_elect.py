"""`odradek elect` on two brokers: an election counts when the leader serves the partition."""

from collections.abc import Iterator

import pytest
from tests.cli.conftest import CommandLine, isr_of

from odradek import Cluster

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, faults=True) as running:
        yield running


def test_an_election_that_did_not_hold_is_reported_with_its_reason(
    odradek: CommandLine, cluster: Cluster
) -> None:
    odradek("topics", "create", "t", "--replicas", "1:2")
    cluster.stop(1)
    cluster.wait_until(lambda: cluster.leader("t") == 2, "broker 2 to lead")
    cluster.start(1)
    cluster.wait_until(lambda: isr_of(cluster, "t") == {1, 2}, "a full ISR")
    cluster.inject(
        1, "ListOffsets", error="NOT_LEADER_OR_FOLLOWER", times=1000, client_id="odradek-cli"
    )
    result = odradek.run("elect", "--preferred", "--topic", "t", "--timeout", "1")
    assert result.exit_code == 1
    assert "has a new leader" not in result.stdout
    assert "t-0: a leader was elected and does not serve it" in result.stderr
    cluster.clear_faults()
    assert odradek("elect", "--preferred", "--topic", "t") == "no partition needs an election\n"


def test_without_a_leader_the_reason_is_what_is_down(
    odradek: CommandLine, cluster: Cluster
) -> None:
    odradek("topics", "create", "alone", "--replicas", "2")
    cluster.stop(2)
    cluster.wait_until(lambda: cluster.leader("alone") is None, "no leader")
    refused = odradek.refused("elect", "--unclean", "--yes", "--topic", "alone")
    assert "alone-0" in refused
    cluster.start(2)
