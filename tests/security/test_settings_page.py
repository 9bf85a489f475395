"""The table of settings in docs/security.md is what the declarations say."""

import runpy
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "security_settings.py"


def test_the_page_is_up_to_date() -> None:
    tool = runpy.run_path(str(TOOL))
    text = tool["PAGE"].read_text()
    assert tool["page"](text) == text, "run make docs"
