"""Overview, brokers and topics, from real brokers."""

from tests.broker.clusters import Cluster, until
from tests.console.consoles import Browser

from odradek.console.console import Console


async def test_the_overview_names_what_there_is(
    brokers: Cluster, seen: tuple[Console, Browser]
) -> None:
    console, browser = seen
    await brokers.create_topic("orders", partitions=4, replicas=3)
    await until(lambda: console.collector.table.find("orders") is not None)
    overview = await browser.get("/overview")
    assert overview["brokers"] == {"alive": [1, 2, 3], "down": [], "total": 3}
    assert overview["controller"] == brokers.controller.id
    assert overview["problems"] == []
    topics = await browser.get("/topics", q="ORD")
    assert [topic["name"] for topic in topics["items"]] == ["orders"]
    assert topics["items"][0]["partitions"] == 4
    topic = await browser.get("/topic", name="orders")
    assert [len(each["isr"]) for each in topic["partitions_list"]] == [3, 3, 3, 3]
    rows = (await browser.get("/brokers"))["items"]
    assert sum(row["leads"] for row in rows) >= 4
    assert sum(row["state"] == "controller" for row in rows) == 1


async def test_a_broker_that_is_gone_is_a_problem_with_its_replicas(
    brokers: Cluster, seen: tuple[Console, Browser]
) -> None:
    console, browser = seen
    await brokers.create_topic("orders", partitions=4, replicas=3)
    await until(lambda: console.collector.table.find("orders") is not None)
    victim = next(id for id in brokers.brokers if id != brokers.controller.id)
    await brokers.stop(victim)
    await until(lambda: console.collector.counts.under_replicated >= 4)
    overview = await browser.get("/overview")
    assert overview["brokers"]["down"] == [victim]
    kinds = {problem["kind"]: problem for problem in overview["problems"]}
    assert kinds["under-replicated"]["count"] >= 4
    assert f"broker {victim} is down" in kinds["under-replicated"]["reason"]
    assert kinds["broker-down"]["subject"] == f"broker {victim}"
