"""One seeded cluster, one console and one browser for the tests of a module.

A test fails on any error in the browser's console, any exception in the page, any report of a
violated content security policy (Chromium writes those to the console too) and any request to
another host.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    ViewportSize,
    expect,
    sync_playwright,
)
from tools.seeded_console import SeededConsole

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
# As root Chromium refuses to start with its sandbox; /dev/shm is small in containers.
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
DEADLINE_MS = 30_000
AXE = Path(__file__).parent / "vendor" / "axe.js"
SIZE: ViewportSize = {"width": 1280, "height": 900}

expect.set_options(timeout=DEADLINE_MS)


@pytest.fixture(scope="module")
def seeded() -> Iterator[SeededConsole]:
    if CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium")
    with SeededConsole() as made:
        yield made


@pytest.fixture(scope="module")
def browser(seeded: SeededConsole) -> Iterator[Browser]:
    """Started after the cluster is seeded: its loop does not let another one run in this thread."""
    # Playwright brings a Node of its own, which would colour its output and confuse a report.
    os.environ.setdefault("NO_COLOR", "1")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield made
        made.close()


class Complaints(NamedTuple):
    """What a browser says that a test must not overlook."""

    errors: list[str]
    foreign: list[str]


def listen(context: BrowserContext, host: str) -> Complaints:
    complaints = Complaints([], [])

    def requested(url: str) -> None:
        if urlsplit(url).netloc != host:
            complaints.foreign.append(url)

    context.on("request", lambda request: requested(request.url))
    context.on(
        "console",
        lambda message: (
            complaints.errors.append(f"{message.text} {message.location}")
            if message.type in ("error", "warning")
            else None
        ),
    )
    context.on("weberror", lambda error: complaints.errors.append(str(error.error)))
    return complaints


@pytest.fixture(scope="module")
def signed_in(browser: Browser, seeded: SeededConsole) -> Iterator[BrowserContext]:
    """A context with the session's cookie, as after opening the link."""
    context = browser.new_context(viewport=SIZE)
    page = context.new_page()
    page.goto(seeded.link)
    expect(page.get_by_role("heading", name="Overview", exact=True)).to_be_visible()
    page.close()
    yield context
    context.close()


@pytest.fixture
def open_page(
    browser: Browser, signed_in: BrowserContext, seeded: SeededConsole
) -> Iterator[Callable[[str], Page]]:
    """Opens a screen in a browser that knows nothing but the cookie and, at the end, checks that
    nothing was complained of."""
    context = browser.new_context(viewport=SIZE, storage_state=signed_in.storage_state())
    context.set_default_timeout(DEADLINE_MS)
    context.add_init_script(path=AXE)
    complaints = listen(context, urlsplit(seeded.address).netloc)

    def open_screen(path: str) -> Page:
        page = context.pages[0] if context.pages else context.new_page()
        page.goto(f"{seeded.address}/c/main/{path}")
        expect(page.locator("main h1")).to_be_visible()
        expect(page.locator("main .skeleton")).to_have_count(0)
        return page

    yield open_screen
    context.close()
    assert complaints.foreign == []
    assert complaints.errors == []
