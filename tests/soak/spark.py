"""`python -m tests.soak.spark [SECONDS] [SEED]`: kill driver, Java, executors and Python's workers
of a pipeline, and now and then torment the brokers, while it lands a stream in two tables and in a
topic; start a second driver on the same checkpoint; then account for every record: none missing,
none twice.

Each life of the pipeline is `odradek pipeline run`, in a session of this machine or on a Spark
cluster, whichever the seed says. A life that ends by itself has to say why in one sentence.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from deltalake import DeltaTable
from tests.interop.harness.processes import descendants
from tests.spark.conftest import LOCAL, Cluster3, SparkCluster
from tests.spark.pipeline.files import SPARK, command, rows

from odradek import Cluster

from .account import Account
from .clients import Listener, Writer
from .command import main
from .run import CONFIG, PARTITIONS, TOPIC, Outcome, Tormentor, heal, is_in_sync, shortcomings

DERIVED, TABLE = "derived", "lake/records"
LAST_ATTEMPTS = 5
ONCE_TIMEOUT_S, STOP_TIMEOUT_S = 900, 120
# How long a pipeline is left alone: from its start, or once it has landed something.
ALONE_S = 30.0
FIRST_BATCH_TIMEOUT_S = 600.0
FILE = """
checkpoint = "checkpoint"
bootstrap = "{bootstrap}"
trigger = "1 seconds"

[[source]]
name = "numbers"
topics = ["{topic}"]
options = {{ maxOffsetsPerTrigger = 2000 }}

[[step]]
name = "records"
sql = '''
SELECT cast(cast(key AS string) AS int) AS key, cast(cast(value AS string) AS long) AS number
FROM numbers
'''

[[step]]
name = "counts"
sql = "SELECT key, count(*) AS n, sum(number) AS total FROM records GROUP BY key"

[[sink]]
from = "records"
kind = "table"
path = "{table}"
compact = {{ every = 5, min_files = 4 }}

[[sink]]
from = "counts"
kind = "table"
path = "lake/counts"
mode = "update"
merge_on = ["key"]

[[sink]]
name = "derived"
from = "records"
kind = "topic"
topic = "{derived}"
"""
# What the processes that can be killed have in their command lines.
JAVA = "org.apache.spark.deploy.SparkSubmit"
EXECUTOR = "CoarseGrainedExecutorBackend"
PYTHON = ("pyspark.daemon", "python_streaming_source_runner")


def named(*words: str) -> list[int]:
    """Our descendants with one of the words in their command lines."""
    found = []
    for process in descendants(os.getpid()):
        with suppress(OSError):
            line = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
            if any(word in line for word in words):
                found.append(process)
    return found


class Life:
    """One `odradek pipeline run`, and what it says."""

    def __init__(self, file: Path, *arguments: str) -> None:
        self._log = file.with_name(f"{time.monotonic_ns()}.log")
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command("run", *arguments, file),
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )

    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def words(self) -> str:
        return self._log.read_text(errors="replace")

    def complaint(self) -> str | None:
        """How it ended, if it was not killed and does not say why in one sentence."""
        if self.process.returncode == -signal.SIGKILL:
            return None
        said = self.words()
        last = said.splitlines()[-1] if said else ""
        if last.startswith("Error: ") and "Traceback (most recent call last)" not in said:
            return None
        return f"a life ended with {self.process.returncode}, saying: {said[-2000:]}"


class Lives:
    """One pipeline, which is run again whenever it has ended, and what is done to it."""

    def __init__(self, file: Path, masters: list[str], rng: random.Random) -> None:
        self.problems: list[str] = []
        self.done: Counter[str] = Counter()
        self._file, self._masters, self._rng = file, masters, rng
        self._life = self._another()
        self._rival: Life | None = None

    def __enter__(self) -> "Lives":
        return self

    def __exit__(self, *_: object) -> None:
        for life in (self._life, self._rival):
            if life is not None and life.is_running():
                life.kill()

    def _another(self) -> Life:
        self.done["lives"] += 1
        return Life(self._file, "--master", self._rng.choice(self._masters))

    def go_on(self) -> None:
        """Start it again if it has ended."""
        if self._rival is not None and not self._rival.is_running():
            self._note_end(self._rival)
            self._rival = None
        if not self._life.is_running():
            self._note_end(self._life)
            self._life = self._another()

    def _note_end(self, life: Life) -> None:
        if complaint := life.complaint():
            self.problems.append(complaint)
        if life.process.returncode != -signal.SIGKILL:
            self.done["ended by themselves"] += 1

    def leave_alone(self) -> None:
        if self._rng.random() < 0.5:
            deadline = time.monotonic() + FIRST_BATCH_TIMEOUT_S
            while self._life.is_running() and ": batch " not in self._life.words():
                if time.monotonic() > deadline:
                    self.problems.append(f"no batch in {FIRST_BATCH_TIMEOUT_S:.0f} s")
                    break
                time.sleep(0.1)
        time.sleep(self._rng.uniform(0, ALONE_S))

    # Torments

    def kill_driver(self) -> None:
        self._life.kill()

    def kill_java(self) -> None:
        self._kill_one(JAVA)

    def kill_executor(self) -> None:
        self._kill_one(EXECUTOR)

    def kill_python(self) -> None:
        self._kill_one(*PYTHON)

    def rival(self) -> None:
        """A second driver on the same checkpoint, as after a network partition."""
        if self._rival is None:
            self._rival = Life(self._file, "--master", LOCAL)

    def _kill_one(self, *words: str) -> None:
        if found := named(*words):
            with suppress(ProcessLookupError):
                os.kill(self._rng.choice(found), signal.SIGKILL)

    def step(self) -> None:
        kills = [self.kill_driver, self.kill_java, self.kill_executor, self.kill_python]
        act = self._rng.choice([*kills, *kills, self.rival])
        act()
        self.done[act.__name__] += 1

    # The end

    def finish(self) -> None:
        """End the last life in order, then land what is left, in as many attempts as it takes."""
        if self._rival is not None:
            self._rival.kill()
        if self._life.is_running():
            self._life.process.send_signal(signal.SIGINT)
            self._ended(self._life, STOP_TIMEOUT_S)
        for _ in range(LAST_ATTEMPTS):
            last = Life(self._file, "--once", "--master", LOCAL)
            if self._ended(last, ONCE_TIMEOUT_S):
                return
        self.problems.append(f"what is left was not landed: {last.words()[-2000:]}")

    def _ended(self, life: Life, timeout_s: float) -> bool:
        try:
            return life.process.wait(timeout_s) == 0
        except subprocess.TimeoutExpired:
            self.problems.append(f"the pipeline did not end within {timeout_s:.0f} s")
            life.kill()
            return False


def audit(
    written: Iterable[tuple[int, int]], landed: Iterable[tuple[int, int]], where: str
) -> list[str]:
    """Which of what was written is missing where it was landed, and which is there twice."""
    want, have = set(written), Counter(landed)
    missing = sorted(want - have.keys())
    twice = sorted(one for one, times in have.items() if times > 1)
    foreign = sorted(have.keys() - want)
    return [
        f"{where}: {len(wrong)} {what}, such as {wrong[:3]}"
        for what, wrong in (("missing", missing), ("twice", twice), ("unknown", foreign))
        if wrong
    ]


def audits(home: Path, cluster: Cluster, account: Account) -> list[str]:
    records = ((row["key"], row["number"]) for row in rows(home / TABLE))
    values = map(json.loads, filter(None, Cluster3(cluster).read_committed(DERIVED)))
    derived = ((row["key"], row["number"]) for row in values)
    counted = {(row["key"], row["n"], row["total"]) for row in rows(home / "lake" / "counts")}
    numbers: dict[int, list[int]] = {}
    for key, number in account.read:
        numbers.setdefault(key, []).append(number)
    right = {(key, len(of), sum(of)) for key, of in numbers.items()}
    problems = audit(account.read, records, "table records")
    problems += audit(account.read, derived, "topic derived")
    if counted != right:
        problems.append(f"table counts: {sorted(counted ^ right)[:3]} and others differ")
    return problems


def run(
    seed: int, seconds: float, home: Path, progress: Callable[[str], None] = lambda line: None
) -> Outcome:
    """Torment a pipeline for so long, let it land what is left, and count."""
    account, rng = Account(), random.Random(seed)
    with (
        Cluster(brokers=3, config=CONFIG, data_dir=home / "brokers") as cluster,
        SparkCluster(home / "spark") as spark,
    ):
        tormentor = Tormentor(cluster, seed)
        for topic in (TOPIC, DERIVED):
            tormentor.create(topic, PARTITIONS)
        cluster.wait_until(lambda: is_in_sync(cluster), "the topic")
        servers = cluster.bootstrap_servers
        file = home / "torment.toml"
        file.write_text(
            FILE.format(bootstrap=servers, topic=TOPIC, derived=DERIVED, table=TABLE) + SPARK
        )
        writer = Writer(servers, TOPIC, account, seed, burst=20, pause_s=0.5)
        listener = Listener(servers, TOPIC, PARTITIONS, account)
        writer.start()
        listener.start()
        with Lives(file, [LOCAL, spark.address], rng) as lives:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                lives.go_on()
                lives.leave_alone()
                (lives if rng.random() < 0.8 else tormentor).step()
                progress(
                    f"{deadline - time.monotonic():6.0f} s left, {len(account.read)} read, "
                    f"{_count(home / TABLE)} landed, {lives.done.total()} lives and torments"
                )
            unanswered = writer.finish()
            outcome = Outcome(seed, account, unanswered, {**tormentor.done, **lives.done})
            outcome.problems += heal(cluster, listener)
            lives.finish()
        outcome.problems += lives.problems + audits(home, cluster, account)
    outcome.problems += shortcomings(account, unanswered)
    return outcome


def _count(table: Path) -> int:
    return DeltaTable(table).count() if DeltaTable.is_deltatable(table) else 0


if __name__ == "__main__":
    main(run)
