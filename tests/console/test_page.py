"""The files that the browser loads, as text: what they may not contain, and what they weigh."""

import gzip
import hashlib
import json
import re
from pathlib import Path

import odradek

STATIC = Path(odradek.__file__).parent / "console" / "static"
MODULES = sorted((STATIC / "js").rglob("*.js"))
# docs/spec/console.md section 3: everything for a first screen, gzipped.
FIRST_SCREEN_BYTES_MAX = 150 * 1024
FIRST_SCREEN = (
    "index.html app.css icon.svg vendor/preact.js js/main.js js/ui.js js/data.js "
    "js/screens/overview.js"
)
# Ways from text to markup or code. Text that a client sent reaches the page as text nodes only.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|\beval\(|"
    r"new Function|createContextualFragment|setAttribute\(.on|srcdoc|javascript:"
)


def test_no_module_makes_markup_or_code_from_text() -> None:
    """CONSOLE acceptance 28: nothing that a client can send runs."""
    for module in MODULES:
        found = FORBIDDEN.search(module.read_text())
        assert found is None, f"{module.name}: {found}"


def test_no_file_names_another_host() -> None:
    """CONSOLE acceptance 3: no request to any other host."""
    for path in [*MODULES, STATIC / "index.html", STATIC / "app.css"]:
        hosts = re.findall(r"(?:https?:)?//[a-z][\w.-]*\.[a-z]{2,}", path.read_text())
        assert hosts == [], path.name


def test_the_page_has_no_inline_script_and_no_inline_style() -> None:
    page = (STATIC / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=", page) == []


def test_every_import_leads_to_a_file() -> None:
    for module in MODULES:
        for target in re.findall(
            r"""(?:from|import) ?["'(]+(\.[^"'`$]+)["']""", module.read_text()
        ):
            assert (module.parent / target).resolve().is_file(), f"{module.name}: {target}"


def test_the_vendored_files_are_the_ones_that_were_fetched() -> None:
    for folder in (STATIC / "vendor", Path(__file__).parent.parent / "browser" / "vendor"):
        record = json.loads((folder / "vendor.json").read_text())
        assert {path.name for path in folder.iterdir()} == {*record["files"], "vendor.json"}
        for name, expected in record["files"].items():
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == expected, name
        for package in record["packages"].values():
            assert package["licence"] in {"MIT", "Apache-2.0", "MPL-2.0"}


def test_a_first_screen_is_light() -> None:
    """CONSOLE acceptance 2: at most 150 KB, gzipped."""
    weights = {
        name: len(gzip.compress((STATIC / name).read_bytes())) for name in FIRST_SCREEN.split()
    }
    assert sum(weights.values()) <= FIRST_SCREEN_BYTES_MAX, weights
