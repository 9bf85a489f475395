"""The pytest plugin as its users see it: fixtures, markers, verbs, faults, the request log."""

import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek import Cluster
from odradek.client import Blocking
from odradek.testing.cluster import ClusterError

pytestmark = [pytest.mark.process, pytest.mark.odradek(config={"num.partitions": 4})]


def make_topic(cluster: Cluster, name: str, partitions: int = 1, copies: int = 3) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(name, partitions, copies)])[name].result(10)
    return name


def deliver(cluster: Cluster, topic: str, value: bytes, **settings: object) -> int:
    """Send one record with librdkafka; its offset."""
    found: list[int] = []

    def delivered(error: object, message: object) -> None:
        if error:
            raise KafkaException(error)
        found.append(message.offset())  # type: ignore[attr-defined]  # librdkafka's message

    # Closed, or the traceback of a failure would keep it alive, and asking for metadata.
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, **settings}) as producer:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
        assert producer.flush(20) == 0
    return found[0]


def test_the_module_shares_a_cluster_of_three_with_the_modules_marker(
    odradek_cluster: Cluster,
) -> None:
    assert odradek_cluster.running() == [1, 2, 3]
    with Blocking(odradek_cluster.bootstrap_servers) as client:
        odradek_cluster.wait_until(lambda: odradek_cluster.controller_id(), "a controller")
        client.run(client.admin.describe_cluster())
    assert odradek_cluster.requests(api="Metadata", client_id="odradek")


@pytest.mark.odradek(brokers=1, config={"num.partitions": 2})
def test_a_marked_test_has_a_cluster_of_its_own(odradek_fresh_cluster: Cluster) -> None:
    assert odradek_fresh_cluster.running() == [1]
    admin = AdminClient({"bootstrap.servers": odradek_fresh_cluster.bootstrap_servers})
    admin.create_topics([NewTopic("t", -1, -1)])["t"].result(10)
    described = odradek_fresh_cluster.topic("t")
    assert described is not None
    assert len(described.partitions) == 2


def test_a_leader_is_moved(odradek_cluster: Cluster) -> None:
    make_topic(odradek_cluster, "moved", partitions=3)
    for broker in odradek_cluster.ids:
        odradek_cluster.move_leader("moved", 1, broker)
        assert odradek_cluster.leader("moved", 1) == broker
    make_topic(odradek_cluster, "alone", copies=1)
    other = next(id for id in odradek_cluster.ids if id != odradek_cluster.leader("alone"))
    with pytest.raises(ClusterError, match="no replica"):
        odradek_cluster.move_leader("alone", 0, other)


def test_an_error_is_retried_and_what_was_refused_is_not_there(odradek_cluster: Cluster) -> None:
    topic = make_topic(odradek_cluster, "refused")
    leader = odradek_cluster.leader(topic)
    assert leader is not None
    odradek_cluster.inject(leader, "Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)
    assert deliver(odradek_cluster, topic, b"x", **{"client.id": "refused"}) == 0
    logged = odradek_cluster.requests(leader, "Produce", "refused")
    assert [entry.fault for entry in logged] == ["error", "error", ""]
    assert logged[0].topics == (topic,)


def test_a_lost_answer_does_not_double_an_idempotent_record(odradek_cluster: Cluster) -> None:
    topic = make_topic(odradek_cluster, "lost")
    leader = odradek_cluster.leader(topic)
    assert leader is not None
    odradek_cluster.inject(leader, "Produce", drop=True, times=2)
    settings = {"enable.idempotence": True, "client.id": "lost"}
    deliver(odradek_cluster, topic, b"x", **settings)
    assert [entry.fault for entry in odradek_cluster.requests(leader, "Produce", "lost")] == [
        "drop",
        "drop",
        "",
    ]
    assert deliver(odradek_cluster, topic, b"y") == 1, "the first record is there once"


def test_an_answer_comes_late(odradek_cluster: Cluster) -> None:
    topic = make_topic(odradek_cluster, "late")
    leader = odradek_cluster.leader(topic)
    assert leader is not None
    odradek_cluster.inject(leader, "Produce", delay_s=0.5)
    started = time.monotonic()
    assert deliver(odradek_cluster, topic, b"x") == 0
    assert time.monotonic() - started >= 0.5


def test_a_fault_of_one_client_or_of_brokers_leaves_the_others_alone(
    odradek_cluster: Cluster,
) -> None:
    topic = make_topic(odradek_cluster, "choosy")
    leader = odradek_cluster.leader(topic)
    assert leader is not None
    odradek_cluster.inject(leader, "Produce", error="UNKNOWN_SERVER_ERROR", client_id="bad")
    assert deliver(odradek_cluster, topic, b"x", **{"client.id": "good"}) == 0
    with pytest.raises(KafkaException):
        deliver(odradek_cluster, topic, b"y", **{"client.id": "bad", "retries": 0})
    odradek_cluster.inject(leader, "Fetch", error="UNKNOWN_SERVER_ERROR", from_brokers=True)
    assert deliver(odradek_cluster, topic, b"z") == 1, "a follower fetches again"
    odradek_cluster.inject(leader, "Produce", error="UNKNOWN_SERVER_ERROR", times=99)
    odradek_cluster.clear_faults()
    assert deliver(odradek_cluster, topic, b"z", retries=0) == 2


def test_mistakes_are_reported(odradek_cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="no API is called 'Prodcue'"):
        odradek_cluster.inject(1, "Prodcue", drop=True)
    with pytest.raises(ValueError, match="no error is called 'OOPS'"):
        odradek_cluster.inject(1, "Produce", error="OOPS")
    with pytest.raises(ValueError, match="one of error, delay_s and drop"):
        odradek_cluster.inject(1, "Produce")


def test_a_cluster_without_faults_has_none(tmp_path: Path) -> None:
    with Cluster(brokers=1) as cluster, pytest.raises(ClusterError, match="faults=True"):
        cluster.inject(1, "Produce", drop=True)


def test_a_marker_that_would_do_nothing_is_refused_and_a_failure_shows_the_logs(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.odradek(brokers=1)
        def test_marked(odradek_cluster):
            pass

        @pytest.mark.odradek(brokers=1)
        def test_failing(odradek_fresh_cluster):
            assert False

        @pytest.mark.odradek(brokers=1)
        def test_whose_broker_has_a_traceback(odradek_fresh_cluster):
            with odradek_fresh_cluster.log_of(1).open("a") as log:
                log.write("Traceback (most recent call last): of the test's own making")
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=2, failed=1, passed=1)
    result.stdout.fnmatch_lines(["*of the test's own making*"])
    result.stdout.fnmatch_lines(["*needs the fixture odradek_fresh_cluster*"])
    result.stdout.fnmatch_lines(["*odradek broker 1*", "*serves PLAINTEXT*"])


def test_the_leader_of_what_does_not_exist_is_an_error(odradek_cluster: Cluster) -> None:
    make_topic(odradek_cluster, "real")
    assert odradek_cluster.leader("real") in odradek_cluster.ids
    with pytest.raises(ClusterError, match="topic 'nosuch' does not exist"):
        odradek_cluster.leader("nosuch")
    with pytest.raises(ClusterError, match="has no partition 7"):
        odradek_cluster.leader("real", 7)
