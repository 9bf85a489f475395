"""How much faster than real time a simulated cluster runs: 3 brokers under two loads, with faults.

Figures are CPU time of this process, so they are those of one core that does nothing else.
"""

import gc
import logging
import time
from collections import Counter
from dataclasses import replace

from odradek.sim.campaign import GARBAGE_MAX
from odradek.sim.plan import Plan, draw_plan
from odradek.sim.run import run
from odradek.sim.workload import Load

SEEDS = (1, 2, 3, 4)
SECONDS = 120.0
LOADS = {
    "an average load": Load(
        producers=2, idempotent=0.5, consumers=1, groups=1, members=2, admin=True
    ),
    "the most a seed draws": Load(
        producers=3, idempotent=0.5, consumers=2, groups=2, members=3, admin=True
    ),
}


def plan_of(seed: int, load: Load) -> Plan:
    """What a seed draws, on three brokers that hold everything, with this load."""
    plan = draw_plan(seed, SECONDS)
    faults = [replace(f, victim=f.victim % 3 + 1, other=f.other % 3 + 1) for f in plan.faults]
    return replace(plan, brokers=3, replication=3, partitions=4, load=load, faults=faults)


def main() -> None:
    logging.disable(logging.CRITICAL)
    gc.set_threshold(GARBAGE_MAX)
    run(draw_plan(0, 5.0))  # compile the codecs
    print(f"simulation, 3 brokers, replication 3, {len(SEEDS)} seeds of {SECONDS:.0f} s")
    for name, load in LOADS.items():
        virtual_s = cpu_s = 0.0
        counts: Counter[str] = Counter()
        for seed in SEEDS:
            plan = plan_of(seed, load)
            begin = time.process_time()
            report = run(plan)
            cpu_s += time.process_time() - begin
            virtual_s += report.virtual_s
            counts.update(report.counts)
        print(f"  {name}")
        print(f"    {virtual_s / cpu_s:6.1f} x real time on one core")
        print(
            f"    {counts['acknowledged'] / virtual_s:6.1f} records acknowledged a virtual second"
        )
        print(f"    {counts['read'] / virtual_s:6.1f} records read a virtual second")


if __name__ == "__main__":
    main()
