"""`make suites`: clients' own tests against three brokers of ours, one summary line for all.

A suite whose program cannot be had here is skipped with the reason. Exits with 1 if a test fails
that is not listed as an exception, or if a listed one passes.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.suites import franz_go, librdkafka
from tests.suites.results import CannotRun, Outcome, Result, judged, summary

from odradek import Cluster


class Suite(NamedTuple):
    """`run` gets the bootstrap servers and a directory for its output."""

    run: Callable[[str, Path], list[Result]]
    exceptions: Mapping[str, str]
    settings: Mapping[str, object] = {}


SUITES = {
    "franz-go": Suite(partial(franz_go.run, chaos=False), franz_go.EXCEPTIONS),
    "franz-go-chaos": Suite(partial(franz_go.run, chaos=True), franz_go.EXCEPTIONS),
    "librdkafka": Suite(librdkafka.run, librdkafka.EXCEPTIONS, librdkafka.SETTINGS),
}
SETTINGS = {
    "num.partitions": 4,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "group.min.session.timeout.ms": 1000,
    # Some tests create ACLs and expect to be refused by them.
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def run(name: str, home: Path) -> list[Result]:
    suite = SUITES[name]
    directory = home / name
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with Cluster(brokers=3, config={**SETTINGS, **suite.settings}) as cluster:
            return judged(suite.run(cluster.bootstrap_servers, directory), suite.exceptions)
    except CannotRun as reason:
        return [Result(name, Outcome.SKIPPED, str(reason))]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    parser.add_argument("only", nargs="*", choices=[*SUITES, []], help="all unless named")
    chosen = parser.parse_args()
    everything: list[Result] = []
    home = Path(tempfile.mkdtemp(prefix="odradek-suites-"))
    print(f"output: {home}", flush=True)
    for name in chosen.only or SUITES:
        results = run(name, home)
        for result in results:
            if result.outcome is not Outcome.PASSED:
                print(f"{name}: {result.name} {result.outcome.value}: {result.detail}")
        print(f"{name}: {summary(results)}", flush=True)
        everything += results
    print(summary(everything))
    sys.exit(any(result.outcome is Outcome.FAILED for result in everything))


if __name__ == "__main__":
    main()
