"""Which lines of the core no seed reaches: `python -m tests.sim.coverage --seeds 20`.

Counts lines inside functions of the packages that a run is to try, and lists those that no seed has
executed, function by function. The seeds are run one after the other in this process, several times
as slowly as without.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import odradek
from odradek.sim.campaign import try_plan
from odradek.sim.plan import draw_plan

ROOT = Path(odradek.__file__).parent
PACKAGES = ("log", "replica", "controller", "coordinator")


class Function(NamedTuple):
    """A function by where it is: so that code objects of two compilations compare equal."""

    path: str
    first_line: int
    name: str


class LineCoverage:
    """The lines of functions below some directories, and which of them have been executed."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self.lines = {
            _function(code): _lines(code)
            for directory in directories
            for path in sorted(directory.rglob("*.py"))
            for code in _functions(compile(path.read_text(), str(path), "exec"))
        }
        self.missing = {function: set(lines) for function, lines in self.lines.items()}
        # By identity, since comparing code objects costs more than running them.
        self._of_code: dict[int, tuple[CodeType, set[int]]] = {}

    def __enter__(self) -> None:
        sys.settrace(self._on_call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _missing_of(self, code: CodeType) -> set[int]:
        known = self._of_code.get(id(code))
        if known is None:
            known = self._of_code[id(code)] = (code, self.missing.get(_function(code), set()))
        return known[1]

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._on_line if self._missing_of(frame.f_code) else None

    def _on_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self._missing_of(frame.f_code).discard(frame.f_lineno)
        return self._on_line

    def report(self, root: Path) -> Iterator[str]:
        """One line for each file, and below it one for each function that was not wholly run."""
        for path in sorted({function.path for function in self.lines}):
            of_file = [function for function in self.lines if function.path == path]
            total = sum(len(self.lines[function]) for function in of_file)
            missing = sum(len(self.missing[function]) for function in of_file)
            yield f"{Path(path).relative_to(root)}: {total - missing} of {total} lines"
            for function in sorted(of_file):
                if self.missing[function]:
                    whole = len(self.missing[function]) == len(self.lines[function])
                    lines = "never called" if whole else _ranges(self.missing[function])
                    yield f"    {function.name}: {lines}"

    def __str__(self) -> str:
        total = sum(map(len, self.lines.values()))
        reached = total - sum(map(len, self.missing.values()))
        return f"{reached} of {total} lines in functions ({100 * reached / total:.1f} %)"


def _functions(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 0x2:  # has local variables of its own: no class body
                yield constant
            yield from _functions(constant)


def _function(code: CodeType) -> Function:
    return Function(code.co_filename, code.co_firstlineno, code.co_qualname)


def _lines(code: CodeType) -> set[int]:
    lines = {line for _, _, line in code.co_lines() if line is not None}
    # The definition itself runs with its module; a lambda or comprehension may have no other.
    return lines - {code.co_firstlineno} if len(lines) > 1 else lines


def _ranges(numbers: set[int]) -> str:
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no seed later")
    options = parser.parse_args()
    deadline = time.monotonic() + 60 * options.minutes
    coverage = LineCoverage([ROOT / package for package in PACKAGES])
    for seed in range(options.first, options.first + options.seeds):
        if time.monotonic() > deadline:
            break
        with coverage:
            outcome = try_plan(draw_plan(seed, options.seconds))
        verdict = "passed" if outcome.reason is None else f"failed: {outcome.reason}"
        print(f"seed {seed} {verdict}; {coverage}", file=sys.stderr, flush=True)
    print(*coverage.report(ROOT), f"{coverage}", sep="\n")


if __name__ == "__main__":
    main()
