"""The console's own /metrics: what needs the whole cluster, under kafka_exporter's names.

docs/spec/console.md section 5. At most so many lines: beyond that only the sums.
"""

import asyncio
from collections.abc import Iterator, Mapping
from itertools import chain, islice

from odradek.client.reader import EARLIEST, LATEST
from odradek.console.console import Console
from odradek.wire.topics import TopicPartition

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LINES_MAX = 50_000
LINES_OF_A_PARTITION = 7
# Lines that are made in one turn of the loop.
SLICE = 500


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + escaped.encode("utf-8", "backslashreplace").decode() + '"'


def line(name: str, value: float, **labels: object) -> str:
    inner = ",".join(f"{key}={quoted(str(text))}" for key, text in labels.items())
    # All digits: an offset that is rounded makes rates of steps.
    shown = f"{value:d}" if isinstance(value, int) else repr(value)
    return f"{name}{{{inner}}} {shown}\n" if inner else f"{name} {shown}\n"


async def export(console: Console) -> str:
    """In slices: tens of thousands of lines would hold up everybody else."""
    collector = console.collector
    parts = [
        line("kafka_brokers", len(collector.brokers.nodes)),
        line("odradek_console_picture_age_seconds", collector.age_s or 0.0),
        line("odradek_console_loop_stall_seconds", console.stall.longest_s),
        *(
            line("kafka_broker_info", 1, id=node.id, address=f"{node.host}:{node.port}")
            for node in collector.brokers.nodes.values()
        ),
    ]
    # Lines of one metric stand together, under its head.
    by_name: dict[str, list[str]] = {}
    ends, starts = await _offsets(console)
    topics, groups = _topics(console, ends, starts), _groups(console)
    lines = chain(parts, topics, groups, _pipelines(console))
    while some := list(islice(lines, SLICE)):
        for text in some:
            by_name.setdefault(text.partition("{")[0].partition(" ")[0], []).append(text)
        await asyncio.sleep(0)
    return "".join(chain.from_iterable(_headed(name, of) for name, of in by_name.items()))


Offsets = Mapping[TopicPartition, int]


async def _offsets(console: Console) -> tuple[Offsets, Offsets]:
    """The ends and starts of all partitions, unless there are too many to be shown."""
    table = console.collector.table
    if LINES_OF_A_PARTITION * len(table) > LINES_MAX:
        return {}, {}
    tps = [
        TopicPartition(name, p)
        for topic, name in enumerate(table.names)
        for p in range(table.partition_count(topic))
    ]
    read = console.group_lags.read_ends
    return await read(tps, LATEST), await read(tps, EARLIEST)


def _headed(name: str, lines: list[str]) -> list[str]:
    kind = "counter" if name.endswith("_total") else "gauge"
    return [f"# TYPE {name} {kind}\n", *lines]


def _topics(console: Console, ends: Offsets, starts: Offsets) -> Iterator[str]:
    table = console.collector.table
    for topic, name in enumerate(table.names):
        yield line("kafka_topic_partitions", table.partition_count(topic), topic=name)
    if LINES_OF_A_PARTITION * len(table) > LINES_MAX:
        return
    for topic in range(len(table.names)):
        for state in table.partitions(topic):
            labels = {"topic": state.topic, "partition": state.p}
            tp = TopicPartition(state.topic, state.p)
            values = {
                "leader": state.leader,
                "replicas": len(state.replicas),
                "in_sync_replica": len(state.isr),
                "leader_is_preferred": bool(state.replicas) and state.leader == state.replicas[0],
                "under_replicated_partition": len(state.isr) < len(state.replicas),
                "current_offset": ends.get(tp),
                "oldest_offset": starts.get(tp),
            }
            for name, value in values.items():
                if value is not None:
                    yield line(f"kafka_topic_partition_{name}", value, **labels)


def _groups(console: Console) -> Iterator[str]:
    groups = list(console.group_lags.groups.values())
    detailed = 2 * sum(len(group.commits) for group in groups) <= LINES_MAX
    for group in groups:
        label = {"consumergroup": group.id}
        if group.members is not None:
            yield line("kafka_consumergroup_members", group.members, **label)
        sums: dict[str, list[float]] = {}
        lags = group.lags()
        for tp, offset in group.commits.items():
            total = sums.setdefault(tp.topic, [0, 0, 0.0])
            total[0] += offset
            total[1] += lags.get(tp, 0)
            total[2] = max(total[2], group.lag_s(tp) or 0.0)
            if detailed:
                where = {**label, "topic": tp.topic, "partition": tp.partition}
                yield line("kafka_consumergroup_current_offset", offset, **where)
                if tp in lags:
                    yield line("kafka_consumergroup_lag", lags[tp], **where)
        for topic, (offsets, lag, seconds) in sums.items():
            where = {**label, "topic": topic}
            yield line("kafka_consumergroup_current_offset_sum", offsets, **where)
            yield line("kafka_consumergroup_lag_sum", lag, **where)
            yield line("odradek_consumergroup_lag_seconds", seconds, **where)


def _pipelines(console: Console) -> Iterator[str]:
    now = console.now_ms()
    for query in console.pipelines.queries.values():
        row = query.row(now)
        label = {"pipeline": row["pipeline"], "query": row["query"]}
        yield line("odradek_pipeline_batch_seconds", row["batch_ms"] / 1000, **label)
        yield line("odradek_pipeline_dead_letters_total", row["dead_letters"], **label)
        yield line("odradek_pipeline_lag", sum(row["lag"].values()), **label)
        yield line("odradek_pipeline_rows_in_per_second", row["rows_in_per_s"], **label)
        yield line("odradek_pipeline_rows_out_per_second", row["rows_out_per_s"], **label)
