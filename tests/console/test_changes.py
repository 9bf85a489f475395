"""Every change is a plan first and an act second. Numbers are those of docs/spec/console.md
section 7."""

import asyncio
import json
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer
from tests.broker.clusters import Cluster, until
from tests.cli.conftest import CommandLine
from tests.console.consoles import Browser, bootstrap_of, console_on

from odradek.client import NewTopic, Producer, check
from odradek.console.console import Console
from odradek.wire.topics import TopicPartition

ORDERS = "orders"
# On two of three brokers, so that there is something to level.
UNLEVEL = {p: (1 + p % 2, 2 - p % 2) for p in range(6)}
THROTTLE = 1_000


async def carry_out(browser: Browser, plan: dict[str, Any], **body: Any) -> Any:
    made = await browser.post("/plans", plan)
    assert made["state"] == "ready", made["blockers"]
    started = await browser.post(f"/plans/{made['id']}/start", body)
    assert started["state"] == "done", started["outcomes"]
    return started


async def make_orders(brokers: Cluster, console: Console) -> None:
    api = console.link.api
    check(await api.admin.create_topics([NewTopic(ORDERS, assignment=UNLEVEL)]))
    await until(lambda: all(each.cache.has_topic(ORDERS) for each in brokers.brokers.values()))
    await until(lambda: console.collector.table.leader(ORDERS, 5) >= 0)
    async with Producer(console.link.client) as producer:
        for p in UNLEVEL:
            await producer.send(ORDERS, b"x", partition=p)


async def test_a_plan_is_that_of_the_command_line_and_is_void_when_its_basis_changes(
    brokers: Cluster, seen: tuple[Console, Browser], tmp_path: Path
) -> None:
    """CONSOLE acceptance 17 and 20."""
    console, browser = seen
    await make_orders(brokers, console)
    asked = {"kind": "reassign", "mode": "level", "topics": [ORDERS]}
    plan = await browser.post("/plans", asked)
    command, file = CommandLine(bootstrap_of(brokers)), tmp_path / "plan.json"
    printed = json.loads(
        await asyncio.to_thread(
            command, "reassign", "generate", "-t", ORDERS, "-o", str(file), "--json"
        )
    )
    assert plan["details"]["json"] == file.read_text().rstrip("\n")
    shown = [{name: row[name] for name in printed["cost"][0]} for row in plan["details"]["cost"]]
    assert shown == printed["cost"]
    assert {row["why"] for row in plan["details"]["partitions"]} != {""}
    # Another tool moves one of them: nothing of the plan is done, and it is named.
    first = plan["details"]["partitions"][0]
    moved = TopicPartition(first["topic"], first["p"])
    admin = console.link.api.admin
    check(await admin.alter_reassignments({moved: [3]}))
    await until(lambda: console.collector.table.leader(*moved) == 3)
    refused = await browser.post(f"/plans/{plan['id']}/start", status=409)
    assert refused["changed"] == [str(moved)] and str(moved) in refused["detail"]
    assert not await admin.list_reassignments()
    again = await browser.post(f"/plans/{plan['id']}/start", status=409)
    assert "failed" in again["detail"], "a plan starts once"


async def test_a_move_is_throttled_survives_the_console_and_is_cancelled_to_where_it_was(
    brokers: Cluster, tmp_path: Path
) -> None:
    """CONSOLE acceptance 18, 19 and 34."""
    bootstrap = bootstrap_of(brokers)
    wanted = {
        "kind": "reassign",
        "mode": "manual",
        "partitions": [{"topic": ORDERS, "p": 0, "replicas": [1, 3]}],
        "throttle_bytes_per_s": THROTTLE,
    }
    async with console_on(bootstrap, tmp_path) as (console, browser):
        await make_orders(brokers, console)
        # More than a follower fetches at once: the throttle lets the first of it through.
        async with Producer(console.link.client) as producer:
            for _ in range(25):
                await (await producer.send(ORDERS, b"x" * 100_000, partition=0))
        await carry_out(browser, wanted)
        await until(lambda: console.collector.moves)
        await console.moves.look()
        moves = await browser.get("/moves")
        assert moves["throttle_bytes_per_s"] == THROTTLE
        on_disk = sum(
            path.stat().st_size for path in (tmp_path / "brokers" / "3").rglob(f"{ORDERS}-0/*.log")
        )
        assert abs(moves["done_bytes"] - on_disk) <= 0.05 * moves["total_bytes"]
        assert moves["items"][0]["back_to"] == [1, 2]
        lines = (await browser.get("/audit", q="reassign"))["items"]
        assert (lines[0]["user"], lines[0]["address"]) == ("local", "127.0.0.1")
        assert (lines[0]["before"], lines[0]["after"]) == ("1,2", "1,3")
        journal = await browser.get("/journal", topic=ORDERS, p=0, kind="reassignment")
        assert {row["user"] for row in journal["items"]} == {"local"}
    # That console is gone. Another one finds the move, and what had been throttled for it.
    async with console_on(bootstrap, tmp_path) as (console, browser):
        await until(lambda: console.collector.moves)
        await carry_out(browser, {"kind": "cancel-moves", "partitions": None})
        await until(lambda: not console.collector.moves)
        tp = TopicPartition(ORDERS, 0)
        await until(lambda: _replicas(console, tp) == [1, 2])
        await console.moves.look()
        assert not (tmp_path / "audit.moves").exists()
        assert await console.moves.read_throttle() is None


def _replicas(console: Console, tp: TopicPartition) -> list[int]:
    state = console.collector.table.partition(*tp)
    return [] if state is None else list(state.replicas)


async def test_offsets_become_what_the_preview_said_and_live_members_are_named(
    brokers: Cluster, seen: tuple[Console, Browser]
) -> None:
    """CONSOLE acceptance 21."""
    console, browser = seen
    await make_orders(brokers, console)
    reset = {"kind": "reset-offsets", "group": "billing", "to": "latest", "topics": [ORDERS]}
    consumer = AIOKafkaConsumer(
        ORDERS,
        bootstrap_servers=bootstrap_of(brokers),
        group_id="billing",
        client_id="the-only-member",
    )
    await consumer.start()
    try:
        blocked = await browser.post("/plans", reset)
        assert blocked["state"] == "blocked"
        assert "the-only-member" in blocked["blockers"][0]
        refused = await browser.post(f"/plans/{blocked['id']}/start", status=409)
        assert refused["blockers"] == blocked["blockers"]
    finally:
        await consumer.stop()
    done = await carry_out(browser, reset)
    preview = {row["p"]: row["to"] for row in done["details"]["rows"]}
    committed = await console.link.api.groups.offsets("billing")
    assert {tp.partition: offset.offset for tp, offset in committed.items()} == preview
    assert set(preview) == set(range(6))


async def test_a_record_is_read_back_as_it_was_produced(
    brokers: Cluster, seen: tuple[Console, Browser]
) -> None:
    """CONSOLE acceptance 27: key, value, headers and partition; a tombstone, too."""
    console, browser = seen
    await make_orders(brokers, console)
    plan = {"kind": "produce", "topic": ORDERS, "p": 3, "encoding": "text"}
    headers = [{"name": "trace", "value": "9f"}, {"name": "trace", "value": "ü"}]
    records: list[dict[str, Any]] = [
        {"key": "user-ü", "value": '{"a": 1}', "headers": headers},
        {"key": "gone", "value": None, "headers": []},
    ]
    for record in records:
        place = (await carry_out(browser, {**plan, **record}))["details"]
        found = await browser.get("/record", topic=ORDERS, p=place["p"], offset=place["offset"])
        assert found["p"] == 3
        assert found["key"]["text"] == record["key"]
        assert (found["value"] or {}).get("text") == record["value"]
        read = [{"name": each["name"], "value": each["value"]["text"]} for each in found["headers"]]
        assert read == record["headers"]
    audited = (console.options.audit_file or Path()).read_text()
    assert "user-ü" not in audited, "contents are not for the audit"


async def test_a_read_only_console_has_no_route_that_changes_anything(
    brokers: Cluster, tmp_path: Path
) -> None:
    """CONSOLE acceptance 21: the route does not exist."""
    async with console_on(bootstrap_of(brokers), tmp_path, read_only=True) as (_, browser):
        for path in ("/plans", "/plans/p1/start"):
            answer = await browser.ask("POST", f"/api/v1{path}", {"kind": "elect"})
            assert answer.status == 404, path
        described = await browser.get("/openapi.json")
        assert not any(path.startswith("/api/v1/plans") for path in described["paths"])
        assert (await browser.get("/session"))["read_only"]
