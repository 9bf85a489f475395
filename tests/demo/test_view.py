"""The demo's screen: it fits terminals small and large, and shows what is wrong."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from odradek.demo.view import BrokerLine, Scene, TopicLine, draw, minutes, sparkline
from odradek.spark.pipeline.progress import QueryProgress

SCENE = Scene(
    stage="running",
    clock="0:23 of 0:30",
    sent=12_345,
    acknowledged=12_300,
    landed=11_900,
    dead=123,
    sent_rates=[500.0] * 200,
    landed_rates=[0.0, 400.0, 800.0],
    brokers=[
        BrokerLine(1, "127.0.0.1:20001", "controller", 19, 55, 55, 1_500_000, 52_000.0),
        BrokerLine(2, "127.0.0.1:20002", "down"),
        BrokerLine(3, "127.0.0.1:20003", "up", 36, 54, 55, 1_500_000, None),
    ],
    topics=[
        TopicLine("clicks", 4, "2/3", False, 12_345, 500.0),
        TopicLine("clicks.valid", 2, "2/3", False, 11_900, 495.0),
        TopicLine("clicks.dead", 1, "2/3", False, 123, 5.0),
    ],
    queries=[
        QueryProgress("events", 12, 500, 498.0, 480.0, 900, {"clicks": 1_234}, rows_out=11_900),
        QueryProgress("counts", 12, 500, 498.0, 0.0, 900, {"clicks": 99}, 6, 2_048),
        QueryProgress("valid", 11, 500, 498.0, 470.0, 900, {"clicks": 1_500}, rows_out=11_400),
        QueryProgress("dead_letters_clicks", rows_out=123),
    ],
    link="http://127.0.0.1:34567/#token=" + "x" * 32,
    events=[(f"0:{at:02d}", f"event {at}", "") for at in range(60)],
)


def lines(scene: Scene, width: int, height: int) -> list[str]:
    output = io.StringIO()
    screen = Console(file=output, width=width, height=height, force_terminal=False)
    screen.print(draw(scene, width, height))
    return output.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 50)])
@pytest.mark.parametrize("scene", [SCENE, Scene(), replace(SCENE, queries=[])])
def test_it_fits(scene: Scene, width: int, height: int) -> None:
    drawn = lines(scene, width, height)
    assert len(drawn) <= height
    assert max(map(len, drawn)) <= width
    assert not any("…" in line for line in drawn)


def test_it_shows_cluster_and_pipeline() -> None:
    drawn = lines(SCENE, 80, 24)
    text = "\n".join(drawn)
    assert "odradek" in drawn[0]
    assert drawn[0].endswith("running  0:23 of 0:30 ─╮")
    assert "12,345 sent, 45 under way" in text
    assert SCENE.link is not None and SCENE.link in text
    assert "11,900 in the table, 123 dead letters" in text
    assert "● 1" in text
    assert "○ 2" in text
    assert "54/55" in text
    (down,) = [line for line in drawn if "down" in line]
    assert "127.0.0.1:20002" in down
    (counts,) = [line for line in drawn if "counts" in line]
    assert "6 (2.0 kB)" in counts
    assert "clicks 99" in counts
    assert "lag at batch" in text, "not what it is now: rows go on arriving meanwhile"
    # The newest events are those that there is room for.
    assert "event 59" in drawn[-1]


def test_a_series_as_bars() -> None:
    assert sparkline([0, 1, 4, 8], 10) == " ▁▄█"
    assert sparkline([1, 8, 8], 2) == "██"
    assert sparkline([0, 0], 5) == sparkline([], 5) == ""
    assert minutes(65.9) == "1:05"
