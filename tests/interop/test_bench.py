"""How the benchmark runs Apache Kafka, since when a death counts, and what the page says of it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.apache_kafka import __main__ as bench
from benchmarks.apache_kafka import measures, report
from benchmarks.apache_kafka.systems import APACHE, OURS, apache
from tests.interop.harness.kafka import KafkaBroker

FIGURES = {OURS: {"start s": [0.3, 0.5]}, APACHE: {"start s": [6.0, 8.0]}}


def test_kafka_is_measured_at_its_own_protocol_and_is_one_cluster_with_ours_at_ours(
    tmp_path: Path,
) -> None:
    apache(tmp_path)
    assert "inter.broker" not in (tmp_path / "broker-1.properties").read_text()
    KafkaBroker(4, 9092, "127.0.0.1:2181", tmp_path / "mixed")
    assert "inter.broker.protocol.version=2.6\n" in (tmp_path / "mixed.properties").read_text()


class Killing:
    """A cluster of one partition on a clock of its own, in which dying takes five seconds."""

    bootstrap_servers = ""

    def __init__(self) -> None:
        self.now = 100.0
        self.brokers = {2: self}

    def kill(self) -> None:
        self.now += 5.0

    def controller(self) -> int:
        return 1 if self.now == 100.0 else 3

    def partitions(self, *_: object) -> list[Any]:
        return [SimpleNamespace(leader_id=2)]

    def send(self, topic: str, values: list[bytes], count: int) -> float:
        self.now += 1.0
        return 1.0


def test_a_death_counts_from_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    system: Any = Killing()
    clock = SimpleNamespace(perf_counter=lambda: system.now)
    monkeypatch.setattr(measures, "time", clock)
    monkeypatch.setattr(measures, "create", lambda *_: None)
    monkeypatch.setattr(measures, "is_led", lambda *_: True)
    monkeypatch.setattr(measures, "Sending", lambda *_, **__: system)
    assert measures.leader_death(system) == {"leader death s": 6.0}
    system = Killing()
    system.brokers = {1: system}
    assert measures.many_partitions(system)["controller death s"] == 5.0


def test_a_page_written_again_has_the_date_of_its_figures() -> None:
    page = report.page(FIGURES, dict.fromkeys(("throughput", "death"), "Long ago; an abacus."), "")
    assert page.count("\nLong ago; an abacus.\n") == 1
    page = report.page(FIGURES, {"throughput": "Long ago.", "death": "Of late."}, "")
    assert "\n- throughput: Long ago.\n- death: Of late.\n" in page


def test_a_page_says_how_far_the_runs_are_apart() -> None:
    page = report.page(FIGURES, {}, "")
    assert "| start to first acknowledged record, s | 0.3 to 0.5 | 6 to 8 | – |" in page


def test_a_measure_that_fails_does_not_lose_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(system: Any) -> measures.Figures:
        return {"start s": 1.0}

    def broken(system: Any) -> measures.Figures:
        raise TimeoutError("no record came")

    def sound(system: Any) -> measures.Figures:
        return {"crowd MB/s": 2.0}

    monkeypatch.setattr(measures, "start", start)
    system: Any = SimpleNamespace(name=OURS)
    failures: list[str] = []
    found = list(bench.run(system, (broken, sound), failures))
    assert found == [{"start s": 1.0}, {"crowd MB/s": 2.0}]
    assert failures == ["ours, broken: TimeoutError: no record came"]
    assert f"\nNot measured: {failures[0]}.\n" in report.page(FIGURES, {}, "", failures)


def test_processor_time_is_that_of_the_load_alone() -> None:
    taken = iter([10.0, 12.5])
    system: Any = SimpleNamespace(processor_seconds=lambda: next(taken))
    with measures.Processor(system) as processor:
        pass
    assert processor.ms_per_megabyte(100) == 25.0
