"""What a checker sees, where no run shows it: each is given what must not be."""

import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest

from odradek.controller import elect_leaders
from odradek.log.config import LogConfig
from odradek.log.host import LogHost
from odradek.log.log import Log
from odradek.sim import cleaned_topics
from odradek.sim.checkers import LogMatching
from odradek.sim.cleaned_topics import COMPACTED, LatestValueKept
from odradek.sim.disk import SimDisk
from odradek.sim.history import History
from odradek.sim.loop import SimLoop
from odradek.sim.plan import draw_plan
from odradek.sim.run import run
from odradek.wire.records import Record, encode_batch
from odradek.wire.topics import TopicPartition

MAIN = TopicPartition("main", 0)


def a_log(name: str, values: dict[int, bytes], **config: str) -> Log:
    loop = SimLoop()
    disk = SimDisk(lambda: 0).mounted(loop.process("host"))
    disk.make_dirs(f"/{name}")
    settings = LogConfig(**config)  # type: ignore[arg-type]
    log = Log(LogHost(disk, lambda: 0), f"/{name}/main-0", MAIN, settings)
    for offset, value in values.items():
        batch = encode_batch([Record(-1, 0, None, value)])
        batch[0:8] = offset.to_bytes(8, "big")
        log.append_as_follower(batch)
    log.set_high_watermark(log.end_offset)
    return log


WHOLE = {offset: b"%d" % offset for offset in range(10)}
HOLE = {offset: value for offset, value in WHOLE.items() if not 3 <= offset < 7}
OTHER = {**WHOLE, 4: b"four"}


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize(
    ("values", "offset"), [(HOLE, 3), (OTHER, 4), (WHOLE, None)], ids=["hole", "other", "same"]
)
def test_logs_must_match_whichever_is_looked_at_first(
    values: dict[int, bytes], offset: int | None, in_order: bool
) -> None:
    history = History()
    checker = LogMatching(SimpleNamespace(loop=SimLoop()), history)  # type: ignore[arg-type]
    replicas = [(1, a_log("one", WHOLE)), (2, a_log("two", values))]
    checker._compare(MAIN, replicas if in_order else replicas[::-1])
    found = [violation.what.split(":")[0] for violation in history.violations]
    assert found == ([] if offset is None else [f"main-0 offset {offset}"])


@pytest.mark.parametrize("silenced", [logging.NOTSET, logging.CRITICAL])
def test_an_exception_that_was_only_logged_is_found(
    silenced: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("unexpected")

    monkeypatch.setattr(elect_leaders, "imbalanced", fail)
    logging.disable(silenced)
    try:
        report = run(replace(draw_plan(1, 30.0), faults=[]))
        assert logging.root.manager.disable == silenced
    finally:
        logging.disable(logging.NOTSET)
    assert report.findings
    for finding in report.findings:
        assert finding.startswith("unexpected: odradek.controller.controller: controller ")
        assert "unexpected" in finding


@pytest.mark.parametrize(
    ("waits", "values", "is_found"),
    [
        (False, [b"1", None], True),
        (True, [b"1", None], False),
        (True, [None, None], True),
        (False, [b"1", b"1"], False),
    ],
)
def test_the_latest_value_is_on_every_replica_or_where_an_operator_finds_it(
    waits: bool, values: list[bytes | None], is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that lost its log refuses to lead; what it lacks another must have."""
    history = History()
    history.cleaning.latest = {b"key": [b"1"]}
    if waits:
        history.refused.add(COMPACTED)
    partitions = [
        (SimpleNamespace(id=id), SimpleNamespace(tp=COMPACTED, local_log=value))
        for id, value in enumerate(values)
    ]
    monkeypatch.setattr(cleaned_topics, "hosted", lambda _: partitions)
    monkeypatch.setattr(cleaned_topics, "records_of", lambda value: [Record(0, 0, b"key", value)])
    LatestValueKept(SimpleNamespace(loop=SimLoop()), history).judge()  # type: ignore[arg-type]
    assert bool(history.violations) == is_found
