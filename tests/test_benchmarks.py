"""`make bench ONLY=...`: what it names are benchmarks, and none of them takes it for its own."""

import sys

import pytest
from benchmarks import __main__, log


def test_a_benchmark_named_among_others_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    monkeypatch.setattr(log, "measure", measured.append)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "wire", "log"])
    __main__.run(["log"])
    assert len(measured) == 1


def test_a_benchmark_that_there_is_not_is_named() -> None:
    with pytest.raises(SystemExit, match="no benchmark logs; there are admin, "):
        __main__.run(["log", "logs"])
