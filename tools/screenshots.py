"""Take a picture of every screen of the console, from a seeded cluster.

    python -m tools.screenshots [--all] [--folder docs/images/console]

The pictures of docs/console.md are 1280 pixels wide and light, the overview also dark. `--all` adds
dark ones and narrow ones of every screen, for a person to look at. Needs Debian's chromium.
"""

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from tools.seeded_console import ORDERS, SeededConsole

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "images" / "console"
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
# Path below /c/main/ by the name of the picture.
SCREENS = {
    "overview": "overview",
    "brokers": "brokers",
    "broker": "broker?id=2",
    "topics": "topics",
    "map": "topics?view=map&internal=1",
    "topic": f"topic?name={ORDERS}",
    "partition": f"partition?topic={ORDERS}&p=3",
    "records": f"records?topic={ORDERS}&open=3:1",
    "live": f"records?topic={ORDERS}&mode=live",
    "produce": f"produce?topic={ORDERS}",
    "groups": "groups",
    "group": "group?id=billing",
    "reset": "group?id=billing&tab=reset",
    "planner": "planner?mode=empty&brokers=3",
    "moves": "moves",
    "configs": f"configs?type=topic&name={ORDERS}",
    "clients": "clients",
    "security": "security",
    "pipelines": "pipelines",
    "controller": "controller",
    "drills": "drills",
    "audit": "audit",
}
# Buttons to press once the screen is there: a plan is made, never started.
PRESSED = {"reset": "Preview", "planner": "Plan"}


class Look(NamedTuple):
    width: int
    scheme: str


NORMAL = Look(1280, "light")
OTHERS = (Look(1280, "dark"), Look(700, "light"), Look(700, "dark"))


def pictures(everything: bool) -> Iterator[tuple[Look, str]]:
    for name in SCREENS:
        yield NORMAL, name
    if not everything:
        yield OTHERS[0], "overview"
        return
    for look in OTHERS:
        for name in SCREENS:
            yield look, name


def open_context(browser: Browser, look: Look, link: str) -> BrowserContext:
    context = browser.new_context(
        viewport={"width": look.width, "height": 800},
        color_scheme="dark" if look.scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(link)
    expect(page.locator("main h1")).to_be_visible(timeout=30_000)
    return context


def take(page: Page, address: str, name: str, file: Path) -> None:
    page.goto(f"{address}/c/main/{SCREENS[name]}")
    expect(page.locator("main h1")).to_be_visible(timeout=30_000)
    expect(page.locator("main .skeleton")).to_have_count(0, timeout=30_000)
    if name in PRESSED:
        page.get_by_role("main").get_by_role("button", name=PRESSED[name], exact=True).click()
        expect(page.get_by_role("group", name="Plan")).to_be_visible(timeout=30_000)
    page.screenshot(path=file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="dark and narrow ones too")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if chromium is None:
        raise SystemExit("no chromium: apt-get install chromium")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with SeededConsole() as seeded, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        contexts: dict[Look, BrowserContext] = {}
        for look, name in pictures(arguments.all):
            if look not in contexts:
                contexts[look] = open_context(browser, look, seeded.link)
            suffix = "" if look == NORMAL else f"-{look.scheme}-{look.width}"
            take(
                contexts[look].pages[0],
                seeded.address,
                name,
                arguments.folder / f"{name}{suffix}.png",
            )
        browser.close()


if __name__ == "__main__":
    main()
