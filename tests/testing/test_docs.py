"""The examples of docs/testing.md, run as they stand there."""

import re
from pathlib import Path

import pytest
from tests.spark.short_lived import JAVA_OPTIONS

pytestmark = pytest.mark.process

DOCUMENT = Path(__file__).parents[2] / "docs" / "testing.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


def title_of(example: str) -> str:
    return re.search(r"def test_(\w+)", example)[1]  # type: ignore[index]  # each has a test


@pytest.mark.parametrize(
    "example", [text for text in EXAMPLES if "spark" not in text], ids=title_of
)
def test_the_example(pytester: pytest.Pytester, example: str) -> None:
    pytester.makepyfile(example)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:asyncio")
    result.assert_outcomes(passed=1)


@pytest.mark.spark
@pytest.mark.parametrize("example", [text for text in EXAMPLES if "spark" in text], ids=title_of)
def test_the_spark_example(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, example: str
) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", JAVA_OPTIONS)
    pytester.makeini("[pytest]\nmarkers = spark: needs Java")
    pytester.makepyfile(example)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:asyncio")
    result.assert_outcomes(passed=1)
