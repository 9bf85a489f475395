"""`make bench`: runs the benchmarks named on the command line, or all of them.

A benchmark is a module of this package with `def main() -> None`, which prints what it measured.
"""

import importlib
import pkgutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
ALL = sorted(
    module.name
    for module in pkgutil.iter_modules([str(HERE)])
    if module.name[0] != "_" and not module.ispkg  # beside Apache Kafka: `make peers-bench`
)


def run(names: list[str]) -> None:
    if unknown := sorted(set(names) - set(ALL)):
        sys.exit(f"no benchmark {', '.join(unknown)}; there are {', '.join(ALL)}")
    for name in names or ALL:
        importlib.import_module(f"{__package__}.{name}").main()
        print(flush=True)


if __name__ == "__main__":
    run(sys.argv[1:])
