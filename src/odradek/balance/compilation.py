"""Compiles the loops of the planner in a process of its own, the first time a machine needs them.

That takes half a minute, once. The child works while its parent asks the cluster, and what it
compiled is kept on disk, beside the source or in the user's cache.
"""

import os
import subprocess
import sys
from pathlib import Path

from odradek.balance import kernels

ENTRIES = (
    kernels.count_up,
    kernels.repair_places,
    kernels.repair_racks,
    kernels.visit_each,
    kernels.spread,
    kernels.take_back,
    kernels.topic_pulls,
    kernels.topic_outside,
    kernels.heaviest,
    kernels.add_by_ratio,
)


def is_compiled() -> bool:
    """Whether all loops were compiled since they were last changed, or cannot be kept anyway."""
    written = Path(kernels.__file__).stat().st_mtime
    for entry in ENTRIES:
        if not hasattr(entry, "stats") or entry.stats.cache_path is None:
            return True
        found = Path(entry.stats.cache_path).glob(f"kernels.{entry.__name__}-*.nbi")
        if not any(index.stat().st_mtime >= written for index in found):
            return False
    return True


def compile_apart() -> "subprocess.Popen[bytes]":
    """Have a child compile the loops; it is done when it ends."""
    return subprocess.Popen(
        [sys.executable, "-m", "odradek.balance.compilation"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


def exercise() -> None:
    """Take a cluster of two brokers through every loop."""
    import numpy as np

    from odradek.balance.explain import Facts, explain
    from odradek.balance.model import LIVE, Brokers, Replicas, assemble
    from odradek.balance.rules import DIMENSIONS
    from odradek.balance.search import find

    count = 8
    replicas = Replicas(
        topics=["t"],
        topic=np.zeros(count, np.int32),
        number=np.arange(count, dtype=np.int32),
        start=np.arange(count + 1, dtype=np.int32),
        broker=np.zeros(count, np.int32),
        size=np.full(count, 10**9),
        rates=np.zeros((count, 5), np.int64),
        in_failed_directory=np.zeros(count, np.uint8),
    )
    brokers = Brokers(
        ids=np.arange(2),
        racks=[None, None],
        states=[LIVE, LIVE],
        capacity=np.zeros((2, len(DIMENSIONS)), np.int64),
        failed_directories=[(), ()],
    )
    cluster = assemble(replicas, brokers)
    explain(cluster, find(cluster), Facts("", 0, 0, 1.0), 0)


if __name__ == "__main__":
    exercise()
