"""The documentation site: no broken link, and no page that loads anything from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.slow]

ROOT = Path(__file__).parent.parent
LOADED = re.compile(
    r"<(?:script|img|iframe|link(?! rel=.?canonical))[^>]+(?:src|href)=.?https?://[^ >]+"
)


def test_the_site_builds_and_every_page_stands_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    pages = sorted(tmp_path.rglob("*.html"))
    assert tmp_path / "ARCHITECTURE.html" in pages
    assert "<svg" in (tmp_path / "ARCHITECTURE.html").read_text()
    assert "move_leader" in (tmp_path / "reference" / "cluster.html").read_text()
    assert (tmp_path / "search" / "search_index.json").exists()
    for page in pages:
        assert not LOADED.findall(page.read_text()), page
