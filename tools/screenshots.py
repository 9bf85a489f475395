"""Take a picture of every screen of the console, from a seeded cluster.

    python -m tools.screenshots [--all] [--folder docs/images/console]

The pictures of docs/console.md are 1280 pixels wide and light, the overview also dark. `--all` adds
dark ones and narrow ones of every screen, for a person to look at. The last are taken while a
broker is down. Needs Debian's chromium.
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
    "broker": "broker?id=1",
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
    "planner": "planner?mode=replication&topics=payments&factor=3",
    "moves": "moves",
    "configs": f"configs?type=topic&name={ORDERS}",
    "clients": "clients",
    "security": "security",
    "pipelines": "pipelines",
    "pipeline": "pipeline?name=clicks&query=events",
    "controller": "controller",
    "drill": "drill?id=d1",
    "audit": "audit",
}
# These are taken with a broker down, so that there is something wrong to look at.
UNWELL = ("overview", "controller", "partition")
# Enough for rates, and for a line in the charts.
SAMPLES_MS = 25_000
SETTLE_MS = 1_500
WAIT_MS = 30_000
# Buttons to press once the screen is there: a plan is made, never started.
PRESSED = {"reset": "Preview", "planner": "Plan"}


# Done by the console before the pictures are taken.
PLANS: tuple[dict[str, object], ...] = (
    {"kind": "alter-configs", "type": "topic", "name": ORDERS, "set": {"min.insync.replicas": "2"}},
    {"kind": "produce", "topic": "empty", "p": 0, "key": "k", "value": "v", "encoding": "text"},
    {"kind": "reassign", "mode": "level", "topics": ["archive"], "throttle_bytes_per_s": 1_500},
    {"kind": "drill", "action": "kill", "broker": 2, "seconds": 2},
)
CARRY_OUT = """async (body) => {
  const post = async (path, body) => {
    const answer = await fetch(`/api/v1${path}`, {method: "POST",
      headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)});
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  };
  const plan = await post("/plans", body);
  await post(`/plans/${plan.id}/start`, {});
}"""


class Look(NamedTuple):
    width: int
    scheme: str


NORMAL = Look(1280, "light")
OTHERS = (Look(1280, "dark"), Look(700, "light"), Look(700, "dark"))


def pictures(everything: bool) -> Iterator[tuple[Look, str]]:
    looks = (NORMAL, *OTHERS) if everything else (NORMAL,)
    for look in looks:
        for name in SCREENS:
            if name not in UNWELL:
                yield look, name
    for look in looks:
        for name in UNWELL:
            yield look, name
    if not everything:
        yield OTHERS[0], "overview"


def open_context(browser: Browser, look: Look, link: str) -> BrowserContext:
    context = browser.new_context(
        viewport={"width": look.width, "height": 800},
        color_scheme="dark" if look.scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(link)
    expect(page.locator("main h1")).to_be_visible(timeout=WAIT_MS)
    return context


def take(page: Page, address: str, name: str, file: Path) -> None:
    page.goto(f"{address}/c/main/{SCREENS[name]}")
    expect(page.locator("main h1")).to_be_visible(timeout=WAIT_MS)
    expect(page.locator("main .skeleton")).to_have_count(0, timeout=WAIT_MS)
    expect(page.get_by_role("banner").get_by_text("connected")).to_be_visible(timeout=WAIT_MS)
    if name in PRESSED:
        page.get_by_role("main").get_by_role("button", name=PRESSED[name], exact=True).click()
        expect(page.get_by_role("group", name="Plan")).to_be_visible(timeout=WAIT_MS)
    if name == "live":
        expect(page.locator("main tbody tr").first).to_be_visible(timeout=WAIT_MS)
    # Grids, charts and tails come a moment after the screen.
    page.wait_for_timeout(SETTLE_MS)
    page.screenshot(path=file)


def change(page: Page, address: str) -> None:
    """A setting, a record, moves too slow to end soon, and a drill, to have them to show."""
    page.goto(f"{address}/c/main/overview")
    for plan in PLANS:
        page.evaluate(CARRY_OUT, plan)
    page.goto(f"{address}/c/main/drill?id=d1")
    expect(page.locator(".page-head")).to_contain_text("done", timeout=2 * WAIT_MS)


def fail(page: Page, seeded: SeededConsole) -> None:
    """Kill a broker that is not the controller, and wait until the overview says so."""
    controller = seeded.cluster.controller_id()
    seeded.cluster.kill(next(id for id in (3, 2) if id != controller))
    page.goto(f"{seeded.address}/c/main/overview")
    problems = page.get_by_role("list", name="Problems")
    expect(problems).to_contain_text("under-replicated", timeout=WAIT_MS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="dark and narrow ones too")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if chromium is None:
        raise SystemExit("no chromium: apt-get install chromium")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with SeededConsole(lively=True) as seeded, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        contexts: dict[Look, BrowserContext] = {}
        is_well = True
        for look, name in pictures(arguments.all):
            if look not in contexts:
                contexts[look] = open_context(browser, look, seeded.link)
                if look == NORMAL:
                    change(contexts[look].pages[0], seeded.address)
                    contexts[look].pages[0].wait_for_timeout(SAMPLES_MS)
            page = contexts[look].pages[0]
            if is_well and name in UNWELL:
                fail(page, seeded)
                is_well = False
            suffix = "" if look == NORMAL else f"-{look.scheme}-{look.width}"
            take(page, seeded.address, name, arguments.folder / f"{name}{suffix}.png")
        browser.close()


if __name__ == "__main__":
    main()
