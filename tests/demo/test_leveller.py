"""The demo's skewed stream is levelled while it flows."""

import threading
from random import Random

import pytest

pytest.importorskip("numba")
pytest.importorskip("pyarrow")

from odradek import Cluster
from odradek.client.blocking_client import Blocking
from odradek.client.values import NewTopic, check
from odradek.demo.audit import read_committed
from odradek.demo.clickstream import ClickStream
from odradek.demo.leveller import Leveller, described

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("planner_kernels")]


def test_a_stream_that_one_broker_leads_ends_on_all_of_them_and_loses_nothing() -> None:
    said: list[str] = []
    config = {"odradek.telemetry.interval.ms": 500}
    with Cluster(brokers=4, config=config) as cluster:
        bootstrap = cluster.bootstrap_servers
        with Blocking(bootstrap) as client:
            topic = NewTopic("clicks", assignment={number: [1, 2, 3] for number in range(4)})
            check(client.run(client.admin.create_topics([topic])))
            client.run(client.client.require_topics(["clicks"]))
            clicks = ClickStream(bootstrap, "clicks", 500, Random(1))
            clicks.start()
            leveller = Leveller(bootstrap, "clicks", 4, lambda text, style: said.append(text))
            leveller.run(threading.Event())
            clicks.stop()
            found = leveller.result
            assert found is not None
            assert found.before == {1: 1.0, 2: 0.0, 3: 0.0, 4: 0.0}
            assert max(found.after.values()) < 0.5
            assert said[0] == "brokers 1-4 lead 100, 0, 0, 0 % of the clicks"
            assert said[-1] == f"plan {found.plan.id} is done: {described(found.after)}"
            assert found.line().endswith("; before 100, 0, 0, 0 %")
            assert not clicks.uncertain
            assert len(read_committed(client, "clicks")) == len(clicks.acknowledged)


def test_nothing_is_begun_when_it_is_over() -> None:
    over = threading.Event()
    over.set()
    leveller = Leveller("127.0.0.1:1", "clicks", 4, lambda text, style: None)
    leveller.run(over)
    assert leveller.result is None
