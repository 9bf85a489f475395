"""franz-go and Kafka's own tools log in with every mechanism, over TLS and without.

As tests/compatibility/test_logins.py, which has the clients that need neither Go nor Apache Kafka.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compatibility.test_logins import (
    PASSWORD,
    REAUTHENTICATION_MS,
    SPECIAL,
    USER,
    Secured,
    check_every_mechanism,
    options_for,
    running,
)
from tests.interop.harness.copying import go_program
from tests.interop.harness.kafka import write_properties
from tests.interop.harness.toolbox import Toolbox

from odradek.security.jaas import Module, jaas_text

MODULES = {
    "PLAIN": Module.PLAIN,
    "SCRAM-SHA-256": Module.SCRAM,
    "SCRAM-SHA-512": Module.SCRAM,
    "OAUTHBEARER": Module.OAUTHBEARER,
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with running(tmp_path_factory.mktemp("logins")) as made:
        yield made


def franz_go(
    secured: Secured, listener: str, mechanism: str, password: str, seconds: int = 0
) -> bool:
    options = options_for(secured, listener, mechanism, password)
    done = subprocess.run(
        [go_program("login"), json.dumps({**options, "user": SPECIAL, "seconds": seconds})],
        capture_output=True,
        timeout=120,
        check=False,
    )
    return done.returncode == 0


def test_franz_go_logs_in_with_every_mechanism_and_again_in_time(secured: Secured) -> None:
    check_every_mechanism(secured, franz_go)
    sessions_s = 2.6 * REAUTHENTICATION_MS / 1000
    assert franz_go(secured, "SASL_SSL", "SCRAM-SHA-256", PASSWORD, seconds=round(sessions_s))


def java_settings(
    secured: Secured, listener: str, mechanism: str, password: str
) -> dict[str, object]:
    settings: dict[str, object] = {
        "security.protocol": listener,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": secured.authority,
    }
    if listener == "SSL":
        return {
            **settings,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": secured.certificate,
        }
    login = {"username": SPECIAL, "password": password}
    if mechanism == "OAUTHBEARER":
        login = {"unsecuredLoginStringClaim_sub": USER}
    jaas = jaas_text(MODULES[mechanism], **login)
    # Java reads the file as Latin-1, and other characters as escapes.
    return {
        **settings,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas.replace("ä", "\\u00e4"),
    }


def test_kafkas_tools_log_in_with_every_mechanism(
    secured: Secured, tools: Toolbox, tmp_path: Path
) -> None:
    def log_in(secured: Secured, listener: str, mechanism: str, password: str) -> bool:
        file = tmp_path / "client.properties"
        write_properties(file, java_settings(secured, listener, mechanism, password))
        printed = tools.try_run(
            "kafka-topics",
            *("--bootstrap-server", secured.addresses[listener]),
            *("--command-config", str(file), "--list"),
        )
        return printed.status == 0

    check_every_mechanism(secured, log_in)


def test_kafkas_producer_logs_in_again_on_its_connections(
    secured: Secured, tools: Toolbox, tmp_path: Path
) -> None:
    """For several sessions, by its own count of logins; no connection is made anew."""
    file = tmp_path / "client.properties"
    write_properties(file, java_settings(secured, "SASL_SSL", "SCRAM-SHA-256", PASSWORD))
    sessions, per_second = 5.6, 10
    records = round(sessions * REAUTHENTICATION_MS / 1000 * per_second)
    printed = tools.run(
        "kafka-producer-perf-test",
        *("--topic", "again", "--num-records", str(records), "--record-size", "10"),
        *("--throughput", str(per_second), "--producer.config", str(file), "--print-metrics"),
        *("--producer-props", f"bootstrap.servers={secured.addresses['SASL_SSL']}"),
    )
    counts = {
        name: float(value)
        for name, value in re.findall(
            r"^producer-metrics:([\w-]+):\{[^}]*\}\s*: (\S+)$", printed, re.M
        )
        if name.endswith("-total")
    }
    assert counts["record-send-total"] == records
    assert counts["record-error-total"] == counts["failed-reauthentication-total"] == 0
    # A connection to find the cluster, and one to write: its sessions begin when it is made, which
    # takes a new JVM a while.
    assert counts["successful-reauthentication-total"] >= 2
    assert counts["connection-creation-total"] <= 2
