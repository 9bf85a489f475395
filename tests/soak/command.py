"""A torment by command: SECONDS and SEED are its arguments; a line of progress, then problems."""

import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from .run import Outcome

Run = Callable[[int, float, Path, Callable[[str], None]], Outcome]


def main(run: Run) -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3600.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32)
    print(f"seed {seed}, {seconds:.0f} s")
    with tempfile.TemporaryDirectory(prefix="torment-") as directory:
        outcome = run(
            seed, seconds, Path(directory), lambda line: print(f"\r{line}", end="", flush=True)
        )
    print(f"\n{outcome}")
    for problem in outcome.problems:
        print(f"PROBLEM: {problem}")
    sys.exit(bool(outcome.problems))
