"""A real cluster from Python: broker processes on this machine, and the verbs that hurt them.

    with Cluster(brokers=3) as cluster:
        produce_to(cluster.bootstrap_servers)
        cluster.kill(2)

Each broker is its own process with its own directory and port, all on one metadata store, as in
production. A broker that was killed, stopped or has died comes back on the same port and directory
with `start`; nothing is restarted behind your back. Leaving the block ends every process, also when
it is left by an exception; processes also end when this one does, however that happens.

With `secure=True` clients must log in over TLS and need permissions: `client_config()` has the
administrator's settings, `add_user` adds users.

With `faults=True` the next answers of an API can be made to fail, wait or get lost (`inject`), and
every request is on record (`requests`).
"""

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.wire.errors import ErrorCode
from odradek.wire.header import FIXED, decode_response, encode_request
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from odradek.wire.schema import Message, Request
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.security.development import DevelopmentSecurity
    from odradek.testing.faults import LoggedRequest
    from odradek.testing.secure import SecureAccess

__all__ = ["Cluster", "ClusterError"]

HOST = "127.0.0.1"
# Below the range from which systems take ports for outgoing connections: a port of ours must still
# be free when its broker comes back.
FIRST_PORT, LAST_PORT = 20_000, 32_000
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
ASK_TIMEOUT_S = 5.0
POLL_S = 0.005
METADATA_VERSION = 9
DESCRIBE_CONFIGS_VERSION = 3
BROKER_RESOURCE = 4
HTTP_LISTENER = "odradek.http.listener"
TELEMETRY_INTERVAL = "odradek.telemetry.interval.ms"
CLIENT_ID = "odradek-cluster"

R = TypeVar("R", bound=Message)


class ClusterError(Exception):
    """Something the cluster could not do; says what and where to look."""


class Cluster:
    """Broker processes on one metadata store, and the ways in which they can fail."""

    def __init__(
        self,
        brokers: int = 3,
        racks: Sequence[str] | None = None,
        config: Mapping[str, object] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        store: str = "sqlite",
        *,
        ports: Sequence[int] | None = None,
        faults: bool = False,
        secure: bool = False,
    ) -> None:
        """`racks` has one name per broker. `config` has Kafka's broker settings, for all of them.
        Without `data_dir` everything is kept in a temporary directory and removed at the end.
        `store` is "sqlite" (a file in the data directory) or the address of a ZooKeeper ensemble,
        zookeeper://host:port/chroot. `secure` needs the extra odradek[security]."""
        if brokers < 1:
            raise ValueError("a cluster has at least one broker")
        if racks is not None and len(racks) != brokers:
            raise ValueError(f"{len(racks)} racks for {brokers} brokers")
        if ports is not None and len(ports) != brokers:
            raise ValueError(f"{len(ports)} ports for {brokers} brokers")
        if secure and faults:
            raise ValueError("faults are asked for without a login: not on a secure cluster")
        self.ids = list(range(1, brokers + 1))
        self._is_temporary = data_dir is None
        self.data_dir = Path(data_dir or tempfile.mkdtemp(prefix="odradek-"))
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.store = f"sqlite:{self.data_dir / 'metadata.db'}" if store == "sqlite" else store
        self._racks: dict[int, str] = dict(zip(self.ids, racks or (), strict=False))
        with _choosing:
            self._ports = dict(zip(self.ids, ports or _free_ports(brokers), strict=True))
            _holding.add(self)
        copies = min(3, brokers)
        self._config: dict[str, object] = {
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": min(2, copies),
            "group.initial.rebalance.delay.ms": 0,
            HTTP_LISTENER: f"{HOST}:0",
            # On one machine a retry can follow soon, and a test is waiting for the shutdown.
            "controlled.shutdown.retry.backoff.ms": 250,
            # No topic appears that the test has not made.
            TELEMETRY_INTERVAL: 0,
            **({"odradek.faults.enable": True} if faults else {}),
            **(config or {}),
        }
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._paused: set[int] = set()
        self._access = _secure_access(self.data_dir, self.store) if secure else None
        # For all brokers together, when the cluster is entered.
        self.start_timeout_s = START_TIMEOUT_S

    # The whole cluster

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{self._ports[broker]}" for broker in self.ids)

    def client_config(self, user: str | None = None) -> dict[str, str]:
        """librdkafka's settings for a client of this cluster; None is the administrator."""
        servers = {"bootstrap.servers": self.bootstrap_servers}
        if self._access is None:
            if user is not None:
                raise ClusterError("this cluster has no users: make it with Cluster(secure=True)")
            return servers
        try:
            return servers | self._access.client_config(user)
        except KeyError:
            raise ClusterError(f"there is no user {user!r}: add_user() first") from None

    @property
    def security_files(self) -> "DevelopmentSecurity | None":
        """Certificates and settings of a secure cluster."""
        return None if self._access is None else self._access.files

    def add_user(self, name: str, password: str) -> None:
        """A user without any permission yet, known to every broker that runs."""
        if self._access is None:
            raise ClusterError("this cluster has no users: make it with Cluster(secure=True)")
        self._access.add_user(self.bootstrap_servers, name, password)
        for broker in self._able():
            self.wait_until(
                lambda at=broker: self._can_log_in(at, name),  # type: ignore[misc]
                f"broker {broker} to know user {name}",
            )

    def _can_log_in(self, broker: int, user: str) -> bool:
        assert self._access is not None
        return broker not in self._able() or self._access.can_log_in(
            user, HOST, self._ports[broker], ASK_TIMEOUT_S
        )

    def __enter__(self) -> "Cluster":
        try:
            for broker in self.ids:
                self._spawn(broker)
            what = f"{len(self.ids)} brokers and a controller"
            self.wait_until(self._is_complete, what, self.start_timeout_s)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process. A cluster whose directory you named is shut down in order first."""
        try:
            self._end_all()
        finally:
            _holding.discard(self)
            if self._access is not None:
                self._access.close()
            if self._is_temporary:
                shutil.rmtree(self.data_dir, ignore_errors=True)

    def _end_all(self) -> None:
        if not self._is_temporary:
            self._stop_all()
        for broker, process in list(self._processes.items()):
            if process.poll() is None:
                process.kill()
                self._paused.discard(broker)
        for process in list(self._processes.values()):
            process.wait()
            if process.stdin is not None:
                process.stdin.close()

    def _stop_all(self) -> None:
        """One after the other, so that each can hand its leaderships to another broker."""
        for broker in self.running():
            try:
                self.stop(broker)
            except ClusterError:
                pass  # it ended by itself meanwhile, or does not end: then it is killed

    def running(self) -> list[int]:
        """The brokers whose process is alive, paused or not."""
        # A copy, because another thread may be starting brokers.
        processes = list(self._processes.items())
        return [broker for broker, process in processes if process.poll() is None]

    def controller_id(self) -> int | None:
        """The broker that most of those that answer take for the active controller."""
        votes: dict[int, int] = {}
        for answer in self._ask_all(MetadataRequest(topics=[])):
            votes[answer.controller_id] = votes.get(answer.controller_id, 0) + 1
        votes.pop(-1, None)
        return max(votes, key=lambda broker: (votes[broker], broker)) if votes else None

    # One broker

    def start(self, broker: int) -> None:
        """Start a broker that does not run, and wait until the others know it."""
        if broker in self.running():
            raise ClusterError(f"broker {broker} is running")
        self._spawn(broker)
        self.wait_until(lambda: self._is_known(broker), f"broker {broker}", START_TIMEOUT_S)

    def kill(self, broker: int) -> None:
        """SIGKILL, without a controlled shutdown. The process has ended when this returns."""
        process = self._process(broker)
        process.kill()
        process.wait()
        self._paused.discard(broker)

    def stop(self, broker: int) -> None:
        """SIGTERM: the broker hands its leaderships over, then ends."""
        process = self._process(broker)
        self.resume(broker)
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise ClusterError(
                f"broker {broker} did not stop in {STOP_TIMEOUT_S:.0f} s; see {self.log_of(broker)}"
            ) from None

    def pause(self, broker: int) -> None:
        """SIGSTOP: the process stands still and its connections stay open."""
        self._process(broker).send_signal(signal.SIGSTOP)
        self._paused.add(broker)

    def resume(self, broker: int) -> None:
        """SIGCONT."""
        self._process(broker).send_signal(signal.SIGCONT)
        self._paused.discard(broker)

    def log_of(self, broker: int) -> Path:
        """The file that the broker logs to."""
        return self.data_dir / f"broker-{broker}.log"

    def port_of(self, broker: int) -> int:
        return self._ports[broker]

    def http_address(self, broker: int) -> str:
        """host:port where a running broker serves its metrics and health."""
        resource = DescribeConfigsResource(
            resource_type=BROKER_RESOURCE,
            resource_name=str(broker),
            configuration_keys=[HTTP_LISTENER],
        )
        request = DescribeConfigsRequest(resources=[resource])
        response = self._answer(broker, request, DESCRIBE_CONFIGS_VERSION, DescribeConfigsResponse)
        values = {config.name: config.value for config in response.results[0].configs}
        address = values.get(HTTP_LISTENER)
        if not address:
            raise ClusterError(f"broker {broker} has no HTTP listener")
        return address

    def directory_of(self, broker: int) -> Path:
        """The broker's data: its partitions' directories are in it."""
        return self.data_dir / f"broker-{broker}"

    def process_id(self, broker: int) -> int:
        return self._process(broker).pid

    # What clients see

    def topic(self, name: str) -> MetadataResponseTopic | None:
        """A topic as the brokers that answer describe it; None if they do not know it."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
        )
        for broker in self._able():
            for answer in self._ask(broker, request):
                for topic in answer.topics:
                    if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        return topic
        return None

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The broker that leads a partition; None while there is no leader, or no broker answers.

        ClusterError if the topic or partition does not exist: it would never have a leader."""
        described = self.topic(topic)
        if described is None:
            if not self._ask_all(MetadataRequest(topics=[])):
                return None
            raise ClusterError(f"topic {topic!r} does not exist")
        leaders = {one.partition_index: one.leader_id for one in described.partitions}
        if described.partitions and partition not in leaders:
            raise ClusterError(f"topic {topic!r} has no partition {partition}")
        leader = leaders.get(partition, -1)
        return leader if leader >= 0 else None

    def wait_until(
        self, holds: Callable[[], object], what: str, timeout_s: float = START_TIMEOUT_S
    ) -> None:
        """Look again and again until it holds; ClusterError names what did not come."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            self._complain_of_the_dead()
            if time.monotonic() > deadline:
                raise ClusterError(f"waited {timeout_s:.0f} s for {what}; logs in {self.data_dir}")
            time.sleep(POLL_S)

    # Faults

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """Make one of a partition's replicas its preferred replica and its leader."""
        from odradek.client import Blocking, ElectionType, check

        moved = TopicPartition(topic, partition)
        security = self.client_config()
        with Blocking(self.bootstrap_servers, client_id=CLIENT_ID, security=security) as client:
            described = client.run(client.admin.describe_topics([topic]))[topic]
            replicas = described.partitions[partition].replicas
            if broker not in replicas:
                raise ClusterError(f"broker {broker} has no replica of {moved}; {replicas} have")
            order = [broker, *(other for other in replicas if other != broker)]
            check(client.run(client.admin.alter_reassignments({moved: order})))
            if self.leader(topic, partition) != broker:
                check(client.run(client.admin.elect_leaders(ElectionType.PREFERRED, [moved])))
        self.wait_until(
            lambda: self.leader(topic, partition) == broker, f"broker {broker} to lead {moved}"
        )

    def inject(
        self,
        broker: int,
        api: str,
        *,
        error: str = "",
        delay_s: float = 0.0,
        drop: bool = False,
        times: int = 1,
        client_id: str | None = None,
        from_brokers: bool = False,
    ) -> None:
        """Let the broker's next `times` answers of an API, such as "Produce", fail or be late.

        error    the request is not carried out, and answered with it: "NOT_LEADER_OR_FOLLOWER"
        delay_s  it is carried out, and its answer comes so much later
        drop     it is carried out, and the connection ends instead of an answer
        """
        if [bool(error), delay_s > 0, drop].count(True) != 1:
            raise ValueError("one of error, delay_s and drop")
        self._command(
            broker,
            do="inject",
            api=api,
            error=error,
            delay_s=delay_s,
            drop=drop,
            times=times,
            client_id=client_id,
            from_brokers=from_brokers,
        )

    def clear_faults(self) -> None:
        """Forget the faults that were injected and have not struck yet."""
        for broker in self._able():
            self._command(broker, do="clear")

    def requests(
        self, broker: int | None = None, api: str | None = None, client_id: str | None = None
    ) -> "list[LoggedRequest]":
        """The requests that running brokers were sent since they started, each in its order."""
        from odradek.testing.faults import LoggedRequest

        logged = [
            LoggedRequest(**{**entry, "topics": tuple(entry["topics"])})
            for each in (self._able() if broker is None else [broker])
            for entry in self._command(each, do="log", after=0)
        ]
        return [
            entry
            for entry in logged
            if api in (None, entry.api) and client_id in (None, entry.client_id)
        ]

    def _command(self, broker: int, **command: object) -> Any:
        from odradek.testing.faults import FAULTS_KEY, FaultsRequest, FaultsResponse

        if not self._config.get("odradek.faults.enable"):
            raise ClusterError("this cluster has no faults: make it with Cluster(faults=True)")
        body = FaultsRequest(command=json.dumps(command).encode()).encode(0)
        frame = FIXED.pack(FAULTS_KEY, 0, 0) + body
        frame = len(frame).to_bytes(4, "big") + frame
        response = _exchange(HOST, self._ports[broker], frame)
        answer = json.loads(decode_response(FaultsResponse, 0, response)[1].answer)
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["answer"]

    # How it is done

    def _spawn(self, broker: int) -> None:
        _holding.add(self)
        if not _is_free(self._ports[broker]):
            raise ClusterError(f"port {self._ports[broker]} is in use by another process")
        settings = {"log.dirs": self.directory_of(broker), **self._config}
        command = [sys.executable, "-m", "odradek", "broker", "--id", str(broker)]
        command += ["--store", self.store, "--host", HOST, "--port", str(self._ports[broker])]
        command += ["--stop-on-eof"]
        if self._access is not None:
            command += ["--config", str(self._access.files.broker_file)]
        if broker in self._racks:
            command += ["--rack", self._racks[broker]]
        for name, value in settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            command += ["--set", f"{name}={text}"]
        with open(self.log_of(broker), "ab") as output:
            # A session of its own, so that Ctrl-C reaches us alone and we can stop them in order.
            self._processes[broker] = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _process(self, broker: int) -> subprocess.Popen[bytes]:
        process = self._processes.get(broker)
        if process is None or process.poll() is not None:
            raise ClusterError(f"broker {broker} is not running")
        return process

    def _complain_of_the_dead(self) -> None:
        for broker, process in list(self._processes.items()):
            if process.poll() not in (None, 0, -signal.SIGKILL, -signal.SIGTERM):
                tail = self.log_of(broker).read_text(errors="replace").splitlines()[-1:]
                raise ClusterError(f"broker {broker} ended by itself: {' '.join(tail)}")

    def _is_complete(self) -> bool:
        answers = self._ask_all(MetadataRequest(topics=[]))
        return len(answers) == len(self.ids) and all(
            answer.controller_id >= 0 and len(answer.brokers) == len(self.ids) for answer in answers
        )

    def _is_known(self, broker: int) -> bool:
        return all(
            broker in {node.node_id for node in answer.brokers}
            for answer in self._ask_all(MetadataRequest(topics=[]))
        ) and any(self._ask(broker, MetadataRequest(topics=[])))

    def _ask_all(self, request: MetadataRequest) -> list[MetadataResponse]:
        """The answers of the brokers that run and are not paused; a silent one is left out."""
        return [answer for broker in self._able() for answer in self._ask(broker, request)]

    def _able(self) -> list[int]:
        """The brokers that can be asked something."""
        return [broker for broker in self.running() if broker not in self._paused]

    def _ask(self, broker: int, request: MetadataRequest) -> list[MetadataResponse]:
        try:
            return [self._answer(broker, request, METADATA_VERSION, MetadataResponse)]
        except OSError:
            return []

    def _answer(self, broker: int, request: Request[R], version: int, answer: type[R]) -> R:
        """Raises OSError."""
        port = self._ports[broker]
        if self._access is None:
            return ask(HOST, port, request, version, answer)
        return self._access.ask(HOST, port, request, version, ASK_TIMEOUT_S)


def _secure_access(data_dir: Path, store: str) -> "SecureAccess":
    from odradek.testing.secure import SecureAccess

    return SecureAccess(data_dir, store)


def ask(host: str, port: int, request: Request[R], version: int, answer: type[R]) -> R:
    """One request on a connection of its own, answered while the caller waits."""
    frame = b"".join(encode_request(request, version, 0, CLIENT_ID))
    return decode_response(answer, version, _exchange(host, port, frame))[1]


def _exchange(host: str, port: int, frame: bytes) -> bytes:
    """A frame out, the next one in, without its size."""
    with socket.create_connection((host, port), ASK_TIMEOUT_S) as connection:
        connection.sendall(frame)
        return _receive(connection, int.from_bytes(_receive(connection, 4), "big"))


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionError("the broker closed the connection")
        received += piece
    return bytes(received)


# The clusters of this process from when they are made until they are closed: the port of a broker
# that is killed, or not started yet, looks free and is not.
_holding: "weakref.WeakSet[Cluster]" = weakref.WeakSet()
_choosing = threading.Lock()


def _free_ports(count: int) -> list[int]:
    """Ports without a listener, below the ephemeral range, that no other cluster of this process
    has reserved. Those of a cluster that has ended are the last to be used again: a client that
    outlives it would connect to the next one, and create topics there."""
    held = {port for cluster in _holding for port in cluster._ports.values()}
    free = (port for port in _candidates if port not in held and _is_free(port))
    return list(itertools.islice(free, count))


def _all_ports() -> Iterator[int]:
    """Round and round, from where other processes are not likely to begin."""
    ports = range(FIRST_PORT, LAST_PORT)
    begin = os.getpid() * 7 % len(ports)
    return itertools.cycle([*ports[begin:], *ports[:begin]])


_candidates = _all_ports()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
