"""What the report of unreached lines says."""

import importlib.util
from pathlib import Path

from tests.sim.coverage import LineCoverage

MODULE = """
class Thing:
    size = 1

    def half(self, wanted):
        if wanted:
            return 1
        return 2

    def never(self):
        return 3

def whole(number):
    return [each + number for each in range(3)]
"""


def test_lines_that_were_not_executed_are_listed_by_function(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location("module", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    coverage = LineCoverage([tmp_path])
    with coverage:
        assert module.Thing().half(wanted=True) == 1
        assert module.whole(1) == [1, 2, 3]
    assert list(coverage.report(tmp_path)) == [
        "module.py: 4 of 6 lines",
        "    Thing.half: 8",
        "    Thing.never: never called",
    ]
    assert str(coverage) == "4 of 6 lines in functions (66.7 %)"
