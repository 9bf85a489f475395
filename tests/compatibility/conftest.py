"""A cluster of three for today's clients, and the table of what each of them can do.

`pytest tests/compatibility --write-compatibility` writes docs/compatibility.md from the
results of the run; its section on differences from Apache Kafka is kept as it is.
"""

import re
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from tests.compatibility.drivers import Driver, Unsupported
from tests.compatibility.drivers.aio import AioKafka
from tests.compatibility.drivers.confluent import Confluent
from tests.compatibility.drivers.kafka_python import KafkaPython
from tests.compatibility.drivers.kafkajs import KafkaJs
from tests.compatibility.drivers.kcat import Kcat

from odradek import Cluster

DRIVERS: tuple[type[Driver], ...] = (Confluent, KafkaPython, AioKafka, KafkaJs, Kcat)
DOCUMENT = Path(__file__).parents[2] / "docs" / "compatibility.md"
DIFFERENCES = "\n## Differences from Apache Kafka"

# (client, feature) -> how it went
_rows: dict[tuple[str, str], str] = {}
_versions: dict[str, str] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-compatibility", action="store_true", help="write docs/compatibility.md"
    )


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    config = {"group.min.session.timeout.ms": 1000, "auto.create.topics.enable": False}
    with Cluster(brokers=3, config=config, faults=True) as running:
        yield running


@pytest.fixture(params=DRIVERS, ids=lambda driver: driver.name)
def make_driver(request: pytest.FixtureRequest, cluster: Cluster) -> Callable[[str], Driver]:
    kind: type[Driver] = request.param

    def make(client_id: str) -> Driver:
        return kind(cluster.bootstrap_servers, client_id)

    return make


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name for this test's topic."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", request.node.name.removeprefix("test_")).strip("-")


@pytest.fixture
def driver(make_driver: Callable[[str], Driver], topic: str) -> Driver:
    made = make_driver(topic)
    if made.name not in _versions:
        _versions[made.name] = made.version()
    return made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a client cannot do is a row of the table, and no failure."""
    report = yield
    name = _client_of(item)
    if name is None:
        return report
    feature = _feature_of(item)
    if call.excinfo is not None and isinstance(call.excinfo.value, Unsupported):
        reason = str(call.excinfo.value)
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"Skipped: {reason}")
        _rows[name, feature] = reason if reason.startswith("not run") else f"no: {reason}"
    elif report.failed:
        _rows[name, feature] = "FAILED"
    elif report.when == "call" and report.passed:
        _rows[name, feature] = "yes"
    return report


def _client_of(item: pytest.Item) -> str | None:
    kind = getattr(item, "callspec", None)
    driver = kind.params.get("make_driver") if kind is not None else None
    return None if driver is None else driver.name


def _feature_of(item: pytest.Item) -> str:
    function = item.originalname.removeprefix("test_").replace("_", " ")  # type: ignore[attr-defined]  # a function
    codec = item.callspec.params.get("codec")  # type: ignore[attr-defined]  # it has parameters
    return f"{function}: {codec}" if codec else function


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--write-compatibility") and _rows:
        DOCUMENT.write_text(_document())


def _document() -> str:
    lines = [
        "# What today's clients can do with Odradek",
        "",
        "Written by `python -m pytest tests/compatibility --write-compatibility` from what the run",
        "found, against three broker processes. Each row is a test with the unmodified client;",
        '"no" is something the client itself does not have. [Differences from Apache Kafka',
        "3.9](#differences-from-apache-kafka-39) are below the table and written by hand.",
        "",
        "| client | version | feature | works |",
        "|---|---|---|---|",
    ]
    for driver in DRIVERS:
        rows = [(feature, how) for (name, feature), how in _rows.items() if name == driver.name]
        if rows and all(how.startswith("not run") for _, how in rows):
            rows = [("everything", rows[0][1])]
        version = _versions.get(driver.name, "")
        lines += [f"| {driver.name} | {version} | {feature} | {how} |" for feature, how in rows]
    _, heading, differences = DOCUMENT.read_text().partition(DIFFERENCES)
    return "\n".join(lines) + "\n" + heading + differences
