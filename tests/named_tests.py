"""Maps from the points of a specification to the tests that show them."""

import ast
from collections.abc import Mapping
from pathlib import Path

TESTS = Path(__file__).parent


def check_tests(points: Mapping[int, list[str]] | Mapping[str, list[str]]) -> None:
    """Every point has a test, `FILE::NAME` as seen from this directory, and each of them exists."""
    known: dict[str, set[str]] = {}
    for point, names in points.items():
        assert names, point
        for name in names:
            file, _, function = name.partition("::")
            if file not in known:
                known[file] = {
                    node.name
                    for node in ast.walk(ast.parse((TESTS / file).read_text()))
                    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                }
            assert function in known[file], name
