"""Every metric of a broker: one table, with its name, type, labels, help and where it comes from.

docs/spec/console.md section 5. The names are those that the JMX exporter gives Kafka's, in the
dialect of its Kafka example and of Strimzi's dashboards; what Kafka does not have begins with
`odradek_`. `/metrics`, `odradek metrics`, docs/metrics.md and the shipped dashboard are all made
from the table.

Collecting must be cheap, because the loop serves no client meanwhile: running counts only, and what
needs a walk over all partitions or groups is sampled beforehand, in slices (`Samples`). The number
of series is bounded: topics by `odradek.metrics.topics.max`, partitions by PARTITIONS_MAX. Client
ids, groups and addresses are never labels.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from odradek.broker.exposition import Metric, MetricType, Sample
from odradek.broker.histogram import Histogram
from odradek.log.log import Log
from odradek.replica.leader.delayed_produce import DelayedProduce
from odradek.replica.leader.fetch_state import DelayedFetch
from odradek.replica.leader.role import LeaderRole
from odradek.replica.partition import Partition
from odradek.wire.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.journal_feed import JournalFeed
    from odradek.broker.loop_lag import LoopLag
    from odradek.broker.process import ProcessUsage
    from odradek.broker.server import Broker

__all__ = [
    "METRICS",
    "PARTITIONS_MAX",
    "PARTITION_METRICS",
    "Reading",
    "Samples",
    "has_late_transaction",
]

# With more partitions than this, their series are at /metrics/partitions only.
PARTITIONS_MAX = 2_000
QUANTILES = (0.50, 0.75, 0.95, 0.98, 0.99, 0.999)
COUNTER, GAUGE, HISTOGRAM = MetricType.COUNTER, MetricType.GAUGE, MetricType.HISTOGRAM
# Kafka's numbers.
STARTING, RUNNING = 1, 3

Statistics: TypeAlias = Mapping[str, object]


@dataclass
class Samples:
    """What is too dear to be counted for each scrape; as old as the last round of the sampler."""

    log_size_bytes: int = 0
    max_lag: int = 0
    groups: int = 0
    offsets: int = 0
    members: int = 0
    producer_ids: int = 0
    late_transactions: int = 0
    transactions: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Reading:
    """What one scrape reads from."""

    broker: "Broker"
    samples: Samples
    lag: "LoopLag"
    journal: "JournalFeed"
    process: "ProcessUsage"

    def __post_init__(self) -> None:
        broker = self.broker
        self.replicas: Statistics = broker.replicas.statistics()
        self.controller: Statistics = broker.controller.statistics()
        self.store: Statistics = broker.store.session.statistics()
        self.sessions: Statistics = broker.fetch_sessions.statistics()
        self.quotas: Statistics = broker.quotas.statistics()
        self.cleaner: Statistics = broker.logs.cleaner.statistics()

    def times_by_api(self) -> dict[str, Histogram]:
        by_api: dict[str, list[Histogram]] = {}
        for route in self.broker.routes.used():
            by_api.setdefault(route.name, []).append(route.times)
        return {name: Histogram.merged(times) for name, times in by_api.items()}


def has_late_transaction(partition: Partition, heard_before_ms: int) -> bool:
    """Whether it is led here and its oldest open transaction has been silent since before then."""
    if not isinstance(partition.role, LeaderRole) or partition.log is None:
        return False
    heard_ms = partition.log.producers.oldest_open_timestamp_ms
    return heard_ms is not None and heard_ms < heard_before_ms


Collect: TypeAlias = Callable[[Reading], Iterable[Sample]]


def one(value: Callable[[Reading], float]) -> Collect:
    """A metric without labels."""
    return lambda reading: [((), value(reading))]


def number(statistics: Statistics, name: str) -> float:
    """One of a part's statistics; 0 where it has none, as of a controller that is not active."""
    value = statistics.get(name, 0)
    assert isinstance(value, int | float)
    return value


def replica(name: str) -> Collect:
    return one(lambda reading: number(reading.replicas, name))


def controller(name: str) -> Collect:
    return one(lambda reading: number(reading.controller, name))


def store(name: str) -> Collect:
    return one(lambda reading: number(reading.store, name))


def cleaner(name: str) -> Collect:
    return one(lambda reading: number(reading.cleaner, name))


def transactions(name: str) -> Collect:
    return one(lambda reading: number(reading.samples.transactions, name))


def topic(name: str) -> Collect:
    """A counter of each topic, after the sum over all."""

    def collect(reading: Reading) -> Iterator[Sample]:
        traffic = reading.broker.replicas.traffic
        count = attrgetter(name)
        yield (), traffic.total(name)
        for topic, counters in traffic.topics():
            yield (topic,), count(counters)

    return collect


def waiting(reading: Reading) -> Iterator[Sample]:
    by_kind = reading.broker.replicas.wheel.waiting_by_kind
    yield ("Produce",), by_kind.get(DelayedProduce, 0)
    yield ("Fetch",), by_kind.get(DelayedFetch, 0)


def requests(reading: Reading) -> Iterator[Sample]:
    for route in reading.broker.routes.used():
        yield (route.name, str(route.version)), route.count


def request_errors(reading: Reading) -> Iterator[Sample]:
    found: dict[tuple[str, str], int] = {}
    for route in reading.broker.routes.used():
        for code, count in route.errors.items():
            key = route.name, ErrorCode(code).name
            found[key] = found.get(key, 0) + count
    yield from found.items()


def total_time_quantiles(reading: Reading) -> Iterator[Sample]:
    for name, times in reading.times_by_api().items():
        for quantile in QUANTILES:
            yield (name, f"{quantile:.3g}"), 1000 * times.quantile_s(quantile)


def total_time_counts(reading: Reading) -> Iterator[Sample]:
    for name, times in reading.times_by_api().items():
        yield (name,), times.count


def request_times(reading: Reading) -> Iterator[Sample]:
    for name, times in reading.times_by_api().items():
        yield (name,), times


def connection_counts(reading: Reading) -> Iterator[Sample]:
    by_listener = reading.broker.connections.admission.by_listener
    for listener in reading.broker.config.listeners():
        yield (listener.name, "0"), by_listener[listener.name]


def connections_refused(reading: Reading) -> float:
    return reading.broker.connections.refused


def answers_held(reading: Reading) -> float:
    return reading.broker.connections.response_budget.used_bytes


def idle(reading: Reading) -> float:
    return round(reading.lag.idle_share, 4)


def broker_state(reading: Reading) -> float:
    return RUNNING if reading.broker.connections.is_serving else STARTING


def replication_throttle(name: str) -> Collect:
    def collect(reading: Reading) -> Iterator[Sample]:
        replicas = reading.broker.replicas
        quotas = {
            "leader": replicas.leader_quota,
            "follower": replicas.follower_quota,
            "directory": replicas.log_dir_moves.quota,
        }
        for side, quota in quotas.items():
            yield (side,), quota.statistics()[name]

    return collect


def events(value: Callable[[Mapping[str, float]], float]) -> Collect:
    def collect(reading: Reading) -> Iterator[Sample]:
        found = reading.controller["events"]
        assert isinstance(found, dict)
        for kind, times in found.items():
            yield (kind,), value(times)

    return collect


def channels(name: str) -> Collect:
    def collect(reading: Reading) -> Iterator[Sample]:
        found = reading.controller.get("channels")
        if isinstance(found, dict):
            for broker_id, statistics in found["brokers"].items():
                yield (str(broker_id),), statistics[name]

    return collect


def journal_entries(reading: Reading) -> Iterator[Sample]:
    for kind, count in reading.journal.by_kind.items():
        yield (kind.value,), count


def build_info(reading: Reading) -> Iterator[Sample]:
    yield (reading.broker.version, reading.process.python), 1


def _metric(
    name: str, type: MetricType, labels: str, help: str, collect: Collect
) -> Metric[Reading]:
    return Metric(name, type, tuple(labels.split()), help, collect)


_TOPICS = "kafka_server_brokertopicmetrics"
_REPLICAS = "kafka_server_replicamanager"
_CONTROLLER = "kafka_controller_kafkacontroller"
_REQUESTS = "kafka_network_requestmetrics"
_MARKERS = "kafka_coordinator_transaction_transactionmarkerchannelmanager"

# (name, type, labels, help, where it comes from)
_ROWS: tuple[tuple[str, MetricType, str, str, Collect], ...] = (
    # Traffic
    (f"{_TOPICS}_messagesin_total", COUNTER, "topic", "Records from clients.", topic("records_in")),
    (f"{_TOPICS}_bytesin_total", COUNTER, "topic", "Bytes from clients.", topic("bytes_in")),
    (f"{_TOPICS}_bytesout_total", COUNTER, "topic", "Bytes to clients.", topic("bytes_out")),
    (
        f"{_TOPICS}_bytesrejected_total",
        COUNTER,
        "topic",
        "Bytes of batches that were refused.",
        topic("bytes_rejected"),
    ),
    (
        f"{_TOPICS}_totalproducerequests_total",
        COUNTER,
        "topic",
        "Produce requests, once for each partition they name.",
        topic("produces"),
    ),
    (
        f"{_TOPICS}_totalfetchrequests_total",
        COUNTER,
        "topic",
        "Fetch requests of clients, once for each partition that is answered.",
        topic("fetches"),
    ),
    (
        f"{_TOPICS}_failedproducerequests_total",
        COUNTER,
        "topic",
        "Produce requests answered with an error, by partition.",
        topic("failed_produces"),
    ),
    (
        f"{_TOPICS}_failedfetchrequests_total",
        COUNTER,
        "topic",
        "Fetch requests answered with an error, by partition.",
        topic("failed_fetches"),
    ),
    (
        f"{_TOPICS}_replicationbytesin_total",
        COUNTER,
        "",
        "Bytes from other brokers.",
        one(lambda reading: reading.broker.replicas.traffic.replication_bytes_in),
    ),
    (
        f"{_TOPICS}_replicationbytesout_total",
        COUNTER,
        "",
        "Bytes to other brokers.",
        one(lambda reading: reading.broker.replicas.traffic.replication_bytes_out),
    ),
    # Replicas
    (f"{_REPLICAS}_partitioncount", GAUGE, "", "Replicas on this broker.", replica("partitions")),
    (f"{_REPLICAS}_leadercount", GAUGE, "", "Partitions led here.", replica("leaders")),
    (
        f"{_REPLICAS}_offlinereplicacount",
        GAUGE,
        "",
        "Replicas on failed directories.",
        replica("offline"),
    ),
    (
        f"{_REPLICAS}_underreplicatedpartitions",
        GAUGE,
        "",
        "Led here, with replicas that are not in sync.",
        replica("under_replicated"),
    ),
    (
        f"{_REPLICAS}_underminisrpartitioncount",
        GAUGE,
        "",
        "Led here, with fewer in-sync replicas than min.insync.replicas.",
        replica("under_min_isr"),
    ),
    (
        f"{_REPLICAS}_atminisrpartitioncount",
        GAUGE,
        "",
        "Led here, with just min.insync.replicas in sync.",
        replica("at_min_isr"),
    ),
    (
        f"{_REPLICAS}_reassigningpartitions",
        GAUGE,
        "",
        "Led here, and being reassigned.",
        replica("reassigning"),
    ),
    (f"{_REPLICAS}_isrshrinks_total", COUNTER, "", "Shrinks of an ISR.", replica("isr_shrunk")),
    (f"{_REPLICAS}_isrexpands_total", COUNTER, "", "Expands of an ISR.", replica("isr_expanded")),
    (
        f"{_REPLICAS}_failedisrupdates_total",
        COUNTER,
        "",
        "ISR changes that the store rejected.",
        replica("isr_refused"),
    ),
    (
        "kafka_server_replicafetchermanager_maxlag",
        GAUGE,
        "clientId",
        "Records that the slowest follower here is behind its leader.",
        lambda reading: [(("Replica",), reading.samples.max_lag)],
    ),
    (
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        GAUGE,
        "delayedOperation",
        "Requests that wait for other replicas or for data.",
        waiting,
    ),
    # The loop, requests and connections
    (
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        GAUGE,
        "",
        "1 is idle, 0 is a processor in full use, over the last minute.",
        one(idle),
    ),
    (
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        GAUGE,
        "",
        "The same: one loop does both.",
        one(idle),
    ),
    (f"{_REQUESTS}_requests_total", COUNTER, "request version", "Requests.", requests),
    (
        f"{_REQUESTS}_totaltimems",
        GAUGE,
        "request quantile",
        "Milliseconds from the start of a request to its answer, since the broker started.",
        total_time_quantiles,
    ),
    (
        f"{_REQUESTS}_totaltimems_count",
        COUNTER,
        "request",
        "Requests that were answered.",
        total_time_counts,
    ),
    (
        "kafka_server_socket_server_metrics_connection_count",
        GAUGE,
        "listener networkProcessor",
        "Open connections.",
        connection_counts,
    ),
    (
        "odradek_request_seconds",
        HISTOGRAM,
        "api",
        "From the start of a request to its answer.",
        request_times,
    ),
    (
        "odradek_request_errors_total",
        COUNTER,
        "api error",
        "Errors in answers, by Kafka's name.",
        request_errors,
    ),
    (
        "odradek_loop_lag_seconds",
        HISTOGRAM,
        "",
        "How late a timer fires that is set every 100 ms.",
        lambda reading: [((), reading.lag.times)],
    ),
    (
        "odradek_connections_refused_total",
        COUNTER,
        "",
        "Connections beyond a limit.",
        one(connections_refused),
    ),
    (
        "odradek_answers_held_bytes",
        GAUGE,
        "",
        "Responses that clients have not read yet.",
        one(answers_held),
    ),
    (
        "odradek_quota_throttled_total",
        COUNTER,
        "",
        "Answers slowed by a client quota.",
        one(lambda reading: number(reading.quotas, "throttled")),
    ),
    (
        "odradek_quota_throttle_seconds_total",
        COUNTER,
        "",
        "For how long, together.",
        one(lambda reading: number(reading.quotas, "throttled_ms") / 1000),
    ),
    # Following
    (
        "odradek_replication_throttle_bytes_per_second",
        GAUGE,
        "side",
        "Throttled replication traffic.",
        replication_throttle("bytes_per_second"),
    ),
    (
        "odradek_replication_throttle_limit_bytes_per_second",
        GAUGE,
        "side",
        "What it is throttled to.",
        replication_throttle("limit"),
    ),
    (
        "odradek_fetcher_errors_total",
        COUNTER,
        "",
        "Errors while following leaders.",
        replica("fetcher_errors"),
    ),
    (
        "odradek_fetcher_truncations_total",
        COUNTER,
        "",
        "Truncations of followers' logs.",
        replica("fetcher_truncations"),
    ),
    (
        "odradek_fetcher_failed_partitions_total",
        COUNTER,
        "",
        "Times a partition was no longer followed, until the next leader epoch.",
        replica("fetcher_failed"),
    ),
    # The controller
    (
        f"{_CONTROLLER}_activecontrollercount",
        GAUGE,
        "",
        "1 on the active controller, else 0, as all of the controller's gauges.",
        one(lambda reading: int(reading.broker.controller.is_active)),
    ),
    (
        f"{_CONTROLLER}_offlinepartitionscount",
        GAUGE,
        "",
        "Partitions without a leader.",
        controller("offline_partitions"),
    ),
    (
        f"{_CONTROLLER}_preferredreplicaimbalancecount",
        GAUGE,
        "",
        "Partitions that are not led by their preferred replica.",
        controller("imbalanced_partitions"),
    ),
    (f"{_CONTROLLER}_activebrokercount", GAUGE, "", "Live brokers.", controller("brokers")),
    (f"{_CONTROLLER}_globaltopiccount", GAUGE, "", "Topics.", controller("topics")),
    (f"{_CONTROLLER}_globalpartitioncount", GAUGE, "", "Partitions.", controller("partitions")),
    (
        f"{_CONTROLLER}_topicstodeletecount",
        GAUGE,
        "",
        "Topics being deleted.",
        controller("topics_to_delete"),
    ),
    (
        f"{_CONTROLLER}_topicsineligibletodeletecount",
        GAUGE,
        "",
        "Of those, topics that have to wait.",
        controller("topics_ineligible_for_deletion"),
    ),
    (
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        COUNTER,
        "",
        "Leaders elected from outside the ISR: records may be lost.",
        one(lambda reading: reading.journal.unclean_elections),
    ),
    (
        "kafka_controller_controllerstats_leaderelectionrateandtimems_count",
        COUNTER,
        "",
        "Elections of a leader.",
        one(lambda reading: reading.journal.elections),
    ),
    (
        "kafka_controller_controllereventmanager_eventqueuesize",
        GAUGE,
        "",
        "Events that wait for the controller.",
        controller("queue_length"),
    ),
    (
        "odradek_controller_event_seconds_sum",
        COUNTER,
        "event",
        "Time spent on events of a kind.",
        events(lambda times: times["count"] * times["processing_ms_mean"] / 1000),
    ),
    (
        "odradek_controller_event_seconds_count",
        COUNTER,
        "event",
        "Events of a kind.",
        events(lambda times: times["count"]),
    ),
    (
        "odradek_controller_channel_queued",
        GAUGE,
        "broker",
        "Control requests that wait for a broker.",
        channels("queued"),
    ),
    (
        "odradek_journal_entries_total",
        COUNTER,
        "kind",
        "Entries of the state-change journal.",
        journal_entries,
    ),
    (
        "odradek_journal_sink_failures_total",
        COUNTER,
        "",
        "Entries that could not be written to the journal's file.",
        one(lambda reading: reading.broker.controller.journal.sink_failures),
    ),
    # The store
    ("odradek_store_connected", GAUGE, "", "1 with a session, else 0.", store("connected")),
    ("odradek_store_operations_total", COUNTER, "", "Operations.", store("operations")),
    ("odradek_store_watches", GAUGE, "", "Watches that are set.", store("watches")),
    (
        "odradek_store_lock_waits_total",
        COUNTER,
        "",
        "Waits for another process' lock (SQLite).",
        store("lock_waits"),
    ),
    # Groups and logs
    (
        "kafka_coordinator_group_groupmetadatamanager_numgroups",
        GAUGE,
        "",
        "Consumer groups coordinated here.",
        one(lambda reading: reading.samples.groups),
    ),
    (
        "kafka_coordinator_group_groupmetadatamanager_numoffsets",
        GAUGE,
        "",
        "Their committed offsets.",
        one(lambda reading: reading.samples.offsets),
    ),
    (
        "odradek_group_members",
        GAUGE,
        "",
        "Their members.",
        one(lambda reading: reading.samples.members),
    ),
    (
        "odradek_group_rebalances_total",
        COUNTER,
        "",
        "Rebalances.",
        one(lambda reading: reading.broker.groups.rebalances),
    ),
    # Transactions
    (
        f"{_REPLICAS}_partitionswithlatetransactionscount",
        GAUGE,
        "",
        "Led here, with a transaction open for longer than any may be: read_committed stops there.",
        one(lambda reading: reading.samples.late_transactions),
    ),
    (
        f"{_REPLICAS}_produceridcount",
        GAUGE,
        "",
        "Producer ids that the logs here remember, once for each log.",
        one(lambda reading: reading.samples.producer_ids),
    ),
    (
        f"{_MARKERS}_unknowndestinationqueuesize",
        GAUGE,
        "",
        "Transaction markers for partitions without a leader.",
        transactions("markers_leaderless"),
    ),
    (
        "kafka_server_addpartitionstotxnmanager_verificationfailurerate_count",
        COUNTER,
        "",
        "Partitions that a coordinator did not confirm before the first batch of a transaction.",
        one(lambda reading: reading.broker.verification.failures),
    ),
    (
        "odradek_transactional_ids",
        GAUGE,
        "",
        "Transactional ids coordinated here.",
        transactions("ids"),
    ),
    (
        "odradek_transactions_open",
        GAUGE,
        "",
        "Their open transactions.",
        transactions("ongoing"),
    ),
    (
        "odradek_transactions_finishing",
        GAUGE,
        "",
        "Their decided transactions whose markers are not all written.",
        transactions("finishing"),
    ),
    (
        "odradek_transactions_timed_out_total",
        COUNTER,
        "",
        "Transactions that were aborted because they timed out.",
        transactions("timed_out"),
    ),
    (
        "odradek_fetch_sessions",
        GAUGE,
        "",
        "Fetch sessions kept.",
        one(lambda reading: number(reading.sessions, "sessions")),
    ),
    (
        "odradek_fetch_sessions_evicted_total",
        COUNTER,
        "",
        "Fetch sessions closed for others.",
        one(lambda reading: number(reading.sessions, "evicted")),
    ),
    (
        "kafka_log_logmanager_offlinelogdirectorycount",
        GAUGE,
        "",
        "Failed log directories.",
        one(lambda reading: len(reading.broker.logs.dirs.offline)),
    ),
    (
        "odradek_log_size_bytes",
        GAUGE,
        "",
        "All logs of this broker.",
        one(lambda reading: reading.samples.log_size_bytes),
    ),
    (
        "odradek_log_to_flush",
        GAUGE,
        "",
        "Logs with unflushed records.",
        one(lambda reading: reading.broker.logs.flusher.to_flush_count),
    ),
    *(
        (
            f"odradek_cleaner_{name}_total",
            COUNTER,
            "",
            help,
            cleaner(key),
        )
        for name, key, help in (
            ("runs", "runs", "Compactions."),
            ("failed", "failed", "Compactions that failed."),
            ("read_bytes", "bytes_read", "Bytes read for compaction."),
            ("written_bytes", "bytes_written", "Bytes written by compaction."),
            ("dropped_records", "records_dropped", "Records removed by compaction."),
        )
    ),
    # The process
    (
        "kafka_server_kafkaserver_brokerstate",
        GAUGE,
        "",
        "Kafka's number: 1 starting, 3 running.",
        one(broker_state),
    ),
    (
        "process_cpu_seconds_total",
        COUNTER,
        "",
        "Processor time used.",
        one(lambda reading: reading.process.cpu_s()),
    ),
    (
        "process_resident_memory_bytes",
        GAUGE,
        "",
        "Memory in use.",
        one(lambda reading: reading.process.resident_bytes()),
    ),
    (
        "process_open_fds",
        GAUGE,
        "",
        "Open files and sockets.",
        one(lambda reading: reading.process.open_files()),
    ),
    (
        "process_max_fds",
        GAUGE,
        "",
        "How many there may be.",
        one(lambda reading: reading.process.files_max()),
    ),
    (
        "process_start_time_seconds",
        GAUGE,
        "",
        "When the broker started, in seconds since 1970.",
        one(lambda reading: reading.process.started_s),
    ),
    ("odradek_build_info", GAUGE, "version python", "Always 1.", build_info),
)
METRICS: tuple[Metric[Reading], ...] = tuple(_metric(*row) for row in _ROWS)


def led(value: Callable[[LeaderRole], float]) -> Callable[[Iterable[Partition]], Iterator[Sample]]:
    """A series of each partition that is led here."""

    def collect(partitions: Iterable[Partition]) -> Iterator[Sample]:
        for partition in partitions:
            role = partition.role
            if isinstance(role, LeaderRole):
                yield (partition.tp.topic, str(partition.tp.partition)), value(role)

    return collect


def logged(
    value: Callable[[Partition], float],
) -> Callable[[Iterable[Partition]], Iterator[Sample]]:
    """A series of each partition that has a log here."""

    def collect(partitions: Iterable[Partition]) -> Iterator[Sample]:
        for partition in partitions:
            if partition.log is not None:
                yield (partition.tp.topic, str(partition.tp.partition)), value(partition)

    return collect


def last_stable_offset_lag(log: Log) -> int:
    return log.high_watermark - log.last_stable_offset


PARTITION_METRICS: tuple[Metric[Iterable[Partition]], ...] = tuple(
    Metric(name, GAUGE, ("topic", "partition"), help, collect)
    for name, help, collect in (
        ("kafka_log_log_size", "Bytes.", logged(lambda each: each.local_log.size_bytes)),
        (
            "kafka_log_log_logstartoffset",
            "The first offset.",
            logged(lambda each: each.local_log.start_offset),
        ),
        (
            "kafka_log_log_logendoffset",
            "The next offset.",
            logged(lambda each: each.local_log.end_offset),
        ),
        (
            "kafka_log_log_numlogsegments",
            "Segments.",
            logged(lambda each: len(each.local_log.segments)),
        ),
        (
            "kafka_cluster_partition_underreplicated",
            "1 if replicas are not in sync.",
            led(lambda role: int(role.is_under_replicated)),
        ),
        (
            "kafka_cluster_partition_underminisr",
            "1 with fewer in-sync replicas than min.insync.replicas.",
            led(lambda role: int(role.is_under_min_isr)),
        ),
        (
            "kafka_cluster_partition_atminisr",
            "1 with just min.insync.replicas in sync.",
            led(lambda role: int(role.is_at_min_isr)),
        ),
        (
            "kafka_cluster_partition_insyncreplicascount",
            "In-sync replicas.",
            led(lambda role: len(role.isr.committed)),
        ),
        (
            "kafka_cluster_partition_laststableoffsetlag",
            "Records below the high watermark that read_committed readers do not get yet.",
            led(lambda role: last_stable_offset_lag(role.replica.open_log)),
        ),
        (
            "kafka_cluster_partition_replicascount",
            "Replicas.",
            led(lambda role: len(role.replicas)),
        ),
    )
)
