"""The controller's scenarios, as the console's histories tell them."""

import asyncio
from pathlib import Path

import pytest
from tests.console.test_access import browser_of
from tests.controller.scenarios.cluster import PuppetCluster
from tests.controller.scenarios.runner import Runner, replay
from tests.controller.scenarios.test_scenarios import SCENARIOS, SESSION_TIMEOUT_MS
from tests.store.conftest import MemoryBackend

from odradek.controller.journal import Entry, EntryKind

# All of them, in parts that run beside each other.
PARTS = [SCENARIOS[number::4] for number in range(4)]


async def entries_of(scenario: str) -> list[tuple[int, Entry]]:
    """What the controllers of a scenario write down, each with the broker that did."""
    heard: list[tuple[int, Entry]] = []

    class Listening(PuppetCluster):
        def _heard(self, id: int, entry: Entry) -> None:
            heard.append((id, entry))
            super()._heard(id, entry)

    backend = MemoryBackend()
    runner = Runner(
        lambda config: Listening(lambda: backend.open(SESSION_TIMEOUT_MS), config, backend.expire)
    )
    try:
        await replay(scenario, runner)
    finally:
        await runner.close()
        await backend.close()
    return heard


@pytest.mark.parametrize("paths", PARTS, ids=range(len(PARTS)))
def test_13_every_change_of_a_leader_is_in_the_history_with_its_cause(
    paths: list[Path], tmp_path: Path
) -> None:
    async def check(path: Path, scenario: str) -> int:
        console, browser = browser_of(tmp_path / path.stem)
        await browser.log_in()
        heard = await entries_of(scenario)
        for id, entry in heard:
            console.journal.book.add(id, entry)
        changes = [entry for _, entry in heard if entry.kind is EntryKind.LEADERSHIP]
        for tp in {entry.partition for entry in changes if entry.partition is not None}:
            answer = await browser.get(
                "/partition/history", topic=tp.topic, p=tp.partition, limit=500
            )
            shown = [
                (row["before"], row["after"], row["why"])
                for row in answer["items"]
                if row["kind"] == "leadership"
            ]
            made = [(each.before, each.after, each.why) for each in changes if each.partition == tp]
            assert shown == made[::-1], f"{path.stem}: {tp}"
            assert all(why for _, _, why in shown), f"{path.stem}: {tp}"
        return len(changes)

    assert sum(asyncio.run(check(path, path.read_text())) for path in paths) > len(paths)
