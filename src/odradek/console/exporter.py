"""The console's own /metrics: what needs the whole cluster, under kafka_exporter's names.

docs/spec/console.md section 5. At most so many lines: beyond that only the sums.
"""

from collections.abc import Iterator

from odradek.console.console import Console

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LINES_MAX = 50_000


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + escaped.encode("utf-8", "backslashreplace").decode() + '"'


def line(name: str, value: float, **labels: object) -> str:
    inner = ",".join(f"{key}={quoted(str(text))}" for key, text in labels.items())
    return f"{name}{{{inner}}} {value:g}\n" if inner else f"{name} {value:g}\n"


def export(console: Console) -> str:
    collector = console.collector
    parts = [
        line("kafka_brokers", len(collector.brokers.nodes)),
        line("odradek_console_picture_age_seconds", collector.age_s or 0.0),
        *(
            line("kafka_broker_info", 1, id=node.id, address=f"{node.host}:{node.port}")
            for node in collector.brokers.nodes.values()
        ),
    ]
    parts += _topics(console)
    parts += _groups(console)
    parts += _pipelines(console)
    return "".join(_headed(parts))


def _headed(lines: list[str]) -> Iterator[str]:
    """Lines of one metric stand together, under its head."""
    by_name: dict[str, list[str]] = {}
    for text in lines:
        by_name.setdefault(text.partition("{")[0].partition(" ")[0], []).append(text)
    for name, found in by_name.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        yield f"# TYPE {name} {kind}\n"
        yield from found


def _topics(console: Console) -> list[str]:
    table = console.collector.table
    found = [
        line("kafka_topic_partitions", table.partition_count(topic), topic=name)
        for topic, name in enumerate(table.names)
    ]
    if 5 * len(table) > LINES_MAX:
        return found
    for topic in range(len(table.names)):
        for state in table.partitions(topic):
            labels = {"topic": state.topic, "partition": state.p}
            name = "kafka_topic_partition"
            preferred = bool(state.replicas) and state.leader == state.replicas[0]
            found += (
                line(f"{name}_leader", state.leader, **labels),
                line(f"{name}_replicas", len(state.replicas), **labels),
                line(f"{name}_in_sync_replica", len(state.isr), **labels),
                line(f"{name}_leader_is_preferred", preferred, **labels),
                line(
                    f"{name}_under_replicated_partition",
                    len(state.isr) < len(state.replicas),
                    **labels,
                ),
            )
    return found


def _groups(console: Console) -> list[str]:
    found = []
    ends = {}
    groups = list(console.group_lags.groups.values())
    detailed = 2 * sum(len(group.commits) for group in groups) <= LINES_MAX
    for group in groups:
        label = {"consumergroup": group.id}
        if group.members is not None:
            found.append(line("kafka_consumergroup_members", group.members, **label))
        sums: dict[str, list[float]] = {}
        lags = group.lags()
        for tp, offset in group.commits.items():
            total = sums.setdefault(tp.topic, [0, 0, 0.0])
            total[0] += offset
            total[1] += lags.get(tp, 0)
            total[2] = max(total[2], group.lag_s.get(tp, 0.0))
            if detailed:
                where = {**label, "topic": tp.topic, "partition": tp.partition}
                found.append(line("kafka_consumergroup_current_offset", offset, **where))
                if tp in lags:
                    found.append(line("kafka_consumergroup_lag", lags[tp], **where))
        for topic, (offsets, lag, seconds) in sums.items():
            where = {**label, "topic": topic}
            found.append(line("kafka_consumergroup_current_offset_sum", offsets, **where))
            found.append(line("kafka_consumergroup_lag_sum", lag, **where))
            found.append(line("odradek_consumergroup_lag_seconds", seconds, **where))
        ends.update(group.ends)
    if detailed:
        found += [
            line(
                "kafka_topic_partition_current_offset", end, topic=tp.topic, partition=tp.partition
            )
            for tp, end in ends.items()
        ]
    return found


def _pipelines(console: Console) -> list[str]:
    found = []
    now = console.now_ms()
    for query in console.pipelines.queries.values():
        row = query.row(now)
        label = {"pipeline": row["pipeline"], "query": row["query"]}
        found.append(line("odradek_pipeline_batch_seconds", row["batch_ms"] / 1000, **label))
        found.append(line("odradek_pipeline_dead_letters_total", row["dead_letters"], **label))
        found.append(line("odradek_pipeline_lag", sum(row["lag"].values()), **label))
    return found
