"""A failing run made smaller: the fewest faults that still fail.

Delta debugging over the plan's list of faults: leave out halves, then quarters, down to single
faults, and keep what is left whenever the run still fails. A shorter list is also a different
order of dice, so what is kept is what was tried, never what was reasoned.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from .faults import Fault
from .plan import Plan
from .run import Report, run


def shrink(
    plan: Plan,
    progress: Callable[[int, int], None] = lambda tried, left: None,
    runs_max: int = 200,
    carry_out: Callable[[Plan], Report] = run,
) -> Plan:
    """A plan with as few of the faults as still make it fail."""
    faults = list(plan.faults)
    tried = 0

    def fails(kept: Sequence[Fault]) -> bool:
        nonlocal tried
        tried += 1
        progress(tried, len(faults))
        return not carry_out(replace(plan, faults=list(kept))).passed

    size = max(len(faults) // 2, 1)
    while faults and tried < runs_max:
        start = 0
        smaller = False
        while start < len(faults) and tried < runs_max:
            kept = faults[:start] + faults[start + size :]
            if fails(kept):
                faults = kept
                smaller = True
            else:
                start += size
        if size == 1 and not smaller:
            break
        size = max(size // 2, 1)
    return replace(plan, faults=faults)
