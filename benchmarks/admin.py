"""What it costs to ask for one topic or one group, alone and among ten thousand.

A broker process with one topic and group is asked every question many times, and again when it has
ten thousand. Figures are CPU time of the broker per question, which a busy machine disturbs less
than the clock, less what an idle broker uses; the ratio is what should be one.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from benchmarks.replica import cpu_s
from odradek.client import LATEST, Admin, Client, Groups, NewTopic, Resource, ResourceType, check
from odradek.client import offsets_at as offsets_of
from odradek.testing.cluster import Cluster
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.topics import TopicPartition

MANY = 10_000
AT_ONCE = 500
TIMES = 2_000
QUIET_S = 10.0
ASKED = "asked"
OF = TopicPartition(ASKED, 0)

Question = Callable[[Client], Awaitable[object]]

QUESTIONS: dict[str, Question] = {
    "Metadata of one topic": lambda client: Admin(client).describe_topics([ASKED]),
    "DescribeConfigs of one topic": lambda client: Admin(client).describe_configs(
        [Resource(ResourceType.TOPIC, ASKED)]
    ),
    "DescribeLogDirs of one partition": lambda client: Admin(client).describe_log_dirs(
        partitions=[OF]
    ),
    "ListOffsets of one partition": lambda client: offsets_of(client, {OF: LATEST}),
    "FindCoordinator": lambda client: client.ask_any(FindCoordinatorRequest(key=ASKED)),
    "DescribeGroups of one group": lambda client: Groups(client).describe_group(ASKED),
    "OffsetFetch of one group": lambda client: Groups(client).offsets(ASKED),
}


def main() -> None:
    with Cluster(brokers=1) as cluster:
        alone, among_many = asyncio.run(measure(cluster))
    print(
        f"{'CPU of the broker for one answer':<40} {'alone':>9} {f'of {MANY:,}':>12} {'ratio':>7}"
    )
    for name in QUESTIONS:
        few, many = alone[name], among_many[name]
        print(f"{name:<40} {few * 1e6:>6.0f} µs {many * 1e6:>9.0f} µs {many / few:>7.2f}")


async def measure(cluster: Cluster) -> tuple[dict[str, float], dict[str, float]]:
    async with Client(cluster.bootstrap_servers, timeout_s=120) as client:
        await add(client, [ASKED])
        alone = await costs(client, cluster)
        others = [f"other-{number}" for number in range(MANY - 1)]
        for start in range(0, len(others), AT_ONCE):
            await add(client, others[start : start + AT_ONCE])
        return alone, await costs(client, cluster)


async def add(client: Client, names: list[str]) -> None:
    """Topics with a setting, and groups that have read the one that is asked for."""
    wanted = [NewTopic(name, 1, 1, configs={"retention.ms": "3600000"}) for name in names]
    check(await Admin(client).create_topics(wanted))
    for name in names:
        check(await Groups(client).alter_offsets(name, {OF: 0}))


async def costs(client: Client, cluster: Cluster) -> dict[str, float]:
    begun, before = time.perf_counter(), cpu_s(cluster)
    await asyncio.sleep(QUIET_S)
    idle = (cpu_s(cluster) - before) / (time.perf_counter() - begun)
    found = {}
    for name, ask in QUESTIONS.items():
        await ask(client)
        begun, before = time.perf_counter(), cpu_s(cluster)
        for _ in range(TIMES):
            await ask(client)
        used = cpu_s(cluster) - before - idle * (time.perf_counter() - begun)
        found[name] = used / TIMES
    return found


if __name__ == "__main__":
    main()
