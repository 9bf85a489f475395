"""Whoever kills a test run has nothing to clean up."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.interop.harness.members import wait_until
from tests.interop.harness.processes import descendants

# Starts a cluster of both programs, says its processes, and waits to be killed.
PROGRAM = """
import sys, time
from pathlib import Path
from odradek.store.zookeeper_server import ZooKeeperServer
from tests.interop.harness.mixed import APACHE, OURS, MixedCluster
from tests.interop.harness.toolbox import Toolbox

home = Path(sys.argv[1])
zookeeper = ZooKeeperServer(home / "zookeeper", port=0)
zookeeper.start()
tools = Toolbox()
cluster = MixedCluster(zookeeper.address, home, {1: APACHE, 2: OURS, 3: OURS})
cluster.start()
cluster.brokers[3].pause()  # nor does one that stands still stay
members = [member.process_id for member in cluster.brokers.values()]
print(zookeeper.process_id, tools.process_id, *members, flush=True)
time.sleep(600)
"""


def lives(process: int) -> bool:
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_nothing_outlives_a_run_that_is_killed(tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    try:
        reported = set(map(int, run.stdout.readline().split()))
        started = descendants(run.pid)
        assert len(reported) == 5
        assert reported <= set(started), "ZooKeeper, the tools' JVM and three brokers"
    finally:
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        run.stdout.close()
    wait_until(lambda: not any(map(lives, started)), f"{started} to end")
