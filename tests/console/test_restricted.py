"""A console whose user may not see everything says so, and does not call silence health."""

import asyncio
from pathlib import Path

import pytest
from tests.broker.clusters import until
from tests.console.consoles import console_on

from odradek import Cluster
from odradek.client import Blocking, NewTopic, check

pytestmark = pytest.mark.process


def test_a_user_without_permissions_sees_what_is_missing(tmp_path: Path) -> None:
    with Cluster(brokers=1, secure=True) as cluster:
        with Blocking(cluster.bootstrap_servers, security=cluster.client_config()) as client:
            check(client.run(client.admin.create_topics([NewTopic("orders", 1, 1)])))
        cluster.add_user("guest", "a password of the guest")
        asyncio.run(look(cluster, tmp_path))


async def look(cluster: Cluster, tmp_path: Path) -> None:
    security = cluster.client_config("guest")
    made = console_on(cluster.bootstrap_servers, tmp_path, security=security)
    async with made as (console, browser):
        await until(lambda: console.collector.is_restricted)
        overview = await browser.get("/overview")
        assert overview["moves"] is None, "not known, which is not none"
        (problem,) = overview["problems"]
        assert (problem["kind"], problem["severity"]) == ("restricted", "warning")
        assert problem["text"] == "this console sees only a part of the cluster"
        for path in ("/moves", "/quotas"):
            refusal = (await browser.refused(path)).json()
            assert refusal["error"] == "CLUSTER_AUTHORIZATION_FAILED"
            assert refusal["detail"].startswith("The user that this console connects as has no ")
