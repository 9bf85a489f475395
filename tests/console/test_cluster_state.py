"""Overview, brokers and topics, from real brokers."""

import asyncio
from pathlib import Path

import pytest
from tests.broker.clusters import Cluster, cluster, until
from tests.console.consoles import Browser, bootstrap_of, console_on

from odradek.console.console import Console
from odradek.controller import partition_states, replica_states


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


async def test_10_a_broker_that_is_gone_is_a_problem_with_the_reason_of_the_journal(
    brokers: Cluster, seen: tuple[Console, Browser]
) -> None:
    console, browser = seen
    await brokers.create_topic("orders", partitions=4, replicas=3)
    await until(lambda: console.collector.table.find("orders") is not None)
    victim = next(id for id in brokers.brokers if id != brokers.controller.id)
    await brokers.stop(victim)
    await until(lambda: victim not in console.collector.brokers.nodes)
    await until(lambda: console.journal.book.last_death(victim) is not None)
    await until(lambda: console.collector.counts.under_replicated >= 4)
    overview = await browser.get("/overview")
    assert overview["brokers"]["down"] == [victim]
    kinds = {problem["kind"]: problem for problem in overview["problems"]}
    assert kinds["under-replicated"]["count"] >= 4
    assert f"broker {victim} is down" in kinds["under-replicated"]["reason"]
    assert kinds["broker-down"]["subject"] == f"broker {victim}"
    assert kinds["broker-down"]["journal_reason"] == f"BrokerChange dead=[{victim}]"
    assert kinds["broker-down"]["since_ms"] is not None


async def test_11_no_screen_is_blank_while_another_controller_is_elected(
    brokers: Cluster, seen: tuple[Console, Browser]
) -> None:
    console, browser = seen
    await brokers.create_topic("orders", partitions=2, replicas=3)
    await until(lambda: console.collector.table.find("orders") is not None)
    before = brokers.controller.id
    stopping = asyncio.ensure_future(brokers.stop(before))
    while not stopping.done():
        overview = await browser.get("/overview")
        assert overview["topics"] >= 1 and overview["partitions"] >= 2
        await asyncio.sleep(0.02)
    await stopping
    await until(lambda: console.collector.brokers.controller not in (before, -1))
    await until(lambda: len(console.journal.book.terms()) >= 2)
    controller = await browser.get("/controller")
    assert controller["broker"] == brokers.controller.id
    assert controller["terms"][0]["broker"] == brokers.controller.id
    assert controller["terms"][0]["epoch"] == controller["terms"][1]["epoch"] + 1


async def test_12_without_brokers_it_says_so_and_recovers_by_itself(tmp_path: Path) -> None:
    async with cluster(tmp_path / "brokers", 1, odradek_http_listener="127.0.0.1:0") as brokers:
        await brokers.create_topic("orders", partitions=2)
        port = brokers.brokers[1].endpoints[0].port
        async with console_on(bootstrap_of(brokers), tmp_path) as (console, browser):
            await until(lambda: console.collector.table.find("orders") is not None)
            await brokers.stop(1)
            await until(lambda: console.collector.failure is not None)
            overview = await browser.get("/overview")
            assert overview["problems"][0]["kind"] == "unanswered"
            assert overview["age_s"] is not None and overview["failure"]
            # The last picture is still served.
            assert (await browser.get("/topic", name="orders"))["partitions"] == 2
            assert (await browser.ask("GET", "/readyz")).status == 503
            await brokers.start(1, listeners=f"PLAINTEXT://127.0.0.1:{port}")
            await until(lambda: console.collector.failure is None)
            assert (await browser.get("/overview"))["failure"] is None


async def test_16_the_drawing_is_that_of_the_tables_and_the_counts_those_of_the_controller(
    brokers: Cluster, seen: tuple[Console, Browser]
) -> None:
    console, browser = seen
    await brokers.create_topic("orders", partitions=4, replicas=2)
    await until(lambda: console.collector.table.find("orders") is not None)
    states = list(brokers.controller.controller.states())
    controller = await browser.get("/controller")
    machines = (("partition_states", partition_states), ("replica_states", replica_states))
    for name, module in machines:
        expected = {
            (before.name, after.name)
            for after, previous in module.VALID_PREVIOUS.items()
            for before in previous
        }
        assert {tuple(edge) for edge in controller[name]["edges"]} == expected
    assert controller["partition_states"]["counts"]["ONLINE"] == len(states) >= 4
    replicas = sum(len(of_replicas) for _, of_replicas in states)
    assert controller["replica_states"]["counts"]["ONLINE"] == replicas >= 8
    assert sum(controller["partition_states"]["counts"].values()) == len(states)


async def test_every_list_and_search_finds_what_there_is(
    brokers: Cluster, seen: tuple[Console, Browser]
) -> None:
    console, browser = seen
    for name in ("clicks", "orders", "orders.dead"):
        await brokers.create_topic(name, partitions=2, replicas=2)
    await until(lambda: len(console.collector.table.names) >= 3)
    page = await browser.get("/topics", limit=2, sort="-name")
    assert [each["name"] for each in page["items"]] == ["orders.dead", "orders"]
    rest = await browser.get("/topics", limit=2, sort="-name", after=page["next"])
    assert [each["name"] for each in rest["items"]] == ["clicks"]
    found = await browser.get("/find", q="ORDER")
    assert found["topics"] == ["orders", "orders.dead"]
    assert (await browser.get("/find", q="broker 2"))["brokers"] == [2]
    grid = await browser.get("/grid", topic="orders")
    letters = "".join(grid["topics"][0]["cells"].values())
    assert letters.count("L") == 2 and letters.count("F") == 2
    partition = await browser.get("/partition", topic="orders", p=1)
    assert partition["end_offset"] == 0 and len(partition["sizes"]) == 2
    again = await browser.ask("GET", "/api/v1/grid", topic="orders")
    same = await browser.ask(
        "GET", "/api/v1/grid", topic="orders", headers={"if-none-match": again.headers["etag"]}
    )
    assert same.status == 304 and not same.body
    for name, value in (("sort", "colour"), ("limit", "0"), ("limit", "a"), ("state", "sad")):
        answer = await browser.refused("/topics", **{name: value})
        assert answer.status == 422 and answer.json()["field"] == name, name


async def test_the_map_of_many_topics_is_made_in_slices(
    brokers: Cluster, seen: tuple[Console, Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    console, browser = seen
    for name in ("a", "b", "c"):
        await brokers.create_topic(name, partitions=2)
    await until(lambda: console.collector.table.leader("c", 1) >= 0)
    monkeypatch.setattr("odradek.console.views.partitions.GRID_SLICE", 2)
    whole = await browser.get("/grid")
    assert [topic["name"] for topic in whole["topics"]] == ["a", "b", "c"]
    assert whole["topics"][1] == (await browser.get("/grid", topic="b"))["topics"][0]
    monkeypatch.setattr("odradek.console.views.partitions.GRID_PARTITIONS_MAX", 5)
    some = await browser.get("/grid")
    assert [topic["name"] for topic in some["topics"]] == ["a", "b"] and some["total"] == 3
