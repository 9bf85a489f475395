"""What a reporter does about a cluster that does not answer."""

from pathlib import Path
from typing import Any

import pytest

from odradek.spark.pipeline import reports
from odradek.spark.pipeline.reports import Reporter
from odradek.spark.pipeline.runner import Run
from odradek.spark.pipeline.spec import load

FILE = """
name = "clicks"
checkpoint = "checkpoint"
bootstrap = "127.0.0.1:1"
[[source]]
name = "clicks"
topics = ["clicks"]
decode = { format = "raw" }
[[sink]]
from = "clicks"
kind = "console"
"""


def test_a_cluster_that_never_answers_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "clicks.toml"
    file.write_text(FILE)
    monkeypatch.setattr(reports, "REPORT_S", 0.0)
    monkeypatch.setattr(reports, "CONTACT_S", 0.01)
    spark: Any = None
    reporter = Reporter(Run(load(file), spark))
    reporter.start()
    reporter.close()
    assert not reporter._thread.is_alive()
