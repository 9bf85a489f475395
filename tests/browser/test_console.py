"""The console in a real browser, on a real cluster. Numbers are those of docs/spec/console.md
section 7."""

import re
import time
from collections.abc import Callable
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect
from tests.browser.conftest import AXE, DEADLINE_MS, SIZE, listen
from tools.seeded_console import HOSTILE_GROUPS, HOSTILE_PIPELINE, ORDERS, SeededConsole

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

Open = Callable[[str], Page]
# Every screen, with the name of its heading.
SCREENS = {
    "overview": "Overview",
    "brokers": "Brokers",
    "broker?id=2": "Broker 2",
    "topics": "Topics",
    "topics?view=map&internal=1": "Topics",
    "topics?act=create": "Topics",
    f"topic?name={ORDERS}": ORDERS,
    f"topic?name={ORDERS}&tab=producers": ORDERS,
    f"partition?topic={ORDERS}&p=3": f"{ORDERS}-3",
    "records": "Records",
    f"records?topic={ORDERS}&open=3:1": "Records",
    f"records?topic={ORDERS}&mode=live": "Records",
    f"produce?topic={ORDERS}": f"Produce to {ORDERS}",
    "groups": "Groups",
    "group?id=billing": "billing",
    "group?id=billing&tab=reset": "billing",
    "pipelines": "Pipelines",
    "planner": "Planner",
    "moves": "Moves",
    f"configs?type=topic&name={ORDERS}": "Configs",
    "clients": "Clients & quotas",
    "security": "Users & ACLs",
    "controller": "Controller",
    "controller?tab=work": "Controller",
    "controller?tab=terms": "Controller",
    "drills": "Drills",
    "audit": "Audit",
    "nowhere": "No such screen",
}
# What is not there has a heading, too, and says so.
MISSING = {
    "topic?name=never-made": "never-made",
    f"partition?topic={ORDERS}&p=99": f"{ORDERS}-99",
    "group?id=never-seen": "never-seen",
    "broker?id=99": "Broker 99",
    "drill?id=d99": "Drill",
    "pipeline?name=none&query=none": "none / none",
}
# The frame around the screens is the same on all of them: it is looked at on the first.
VIOLATIONS = """async ([part, rules]) => (await axe.run(document.querySelector(part),
  {runOnly: rules, resultTypes: ["violations"]})).violations.map(
  (each) => `${each.id}: ${each.nodes.slice(0, 3).map((node) => node.html).join(" ")}`)"""
EXCESS = "document.documentElement.scrollWidth - innerWidth"
ALL_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
COLOURS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
# What another layout can break.
LAYOUT = {"type": "rule", "values": ["scrollable-region-focusable", "target-size", "region"]}
PRESSED, TICKED = "pressed", "ticked"
NARROW: ViewportSize = {"width": 700, "height": 900}
# The pixels of a page that is shown at 200 % in a window of the usual size.
ZOOMED: ViewportSize = {"width": SIZE["width"] // 2, "height": SIZE["height"] // 2}


def heading(page: Page, name: str) -> None:
    expect(page.locator("main h1")).to_have_text(name)


def test_the_link_signs_in_and_the_first_screen_is_light(
    browser: Browser, seeded: SeededConsole
) -> None:
    """CONSOLE acceptance 2 and 3: at most 12 requests, none to another host; the token leaves the
    address."""
    context = browser.new_context(viewport=SIZE)
    requests: list[str] = []
    context.on("request", lambda request: requests.append(request.url))
    complaints = listen(context, urlsplit(seeded.address).netloc)
    page = context.new_page()
    page.goto(seeded.link)
    expect(page.get_by_role("list", name="Brokers").get_by_role("listitem")).to_have_count(3)
    assert page.url == f"{seeded.address}/c/main/overview"
    # The stream may be opened again as parts of the screen appear, and Chromium asks for the icon
    # whenever the address changes.
    first = {url.partition("?")[0] for url in requests}
    assert len(first) <= 12, first
    assert not any("token" in url for url in requests)
    context.close()
    assert complaints == ([], [])


CARRY_OUT = """async (body) => {
  const post = async (path, body) => (await fetch(`/api/v1${path}`, {method: "POST",
    headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)})).json();
  const plan = await post("/plans", body);
  return post(`/plans/${plan.id}/start`, {});
}"""


def carry_out(page: Page, plan: dict[str, object]) -> None:
    """A change, as another user's tab would make it."""
    assert page.evaluate(CARRY_OUT, plan)["state"] == "done"


def go(page: Page, path: str, name: str) -> None:
    """Another screen in the same page, as a link inside the console would."""
    page.evaluate(
        """(path) => {
          history.pushState(null, "", `/c/main/${path}`);
          dispatchEvent(new PopStateEvent("popstate"));
        }""",
        path,
    )
    heading(page, name)
    expect(page.locator("main .skeleton")).to_have_count(0)


def test_every_screen_passes_axe_in_light_and_dark_and_fits(open_page: Open) -> None:
    """CONSOLE acceptance 3 and 35: no violation, no error, nothing wider than the window."""
    page = open_page("overview")
    for path, name in SCREENS.items():
        page.set_viewport_size(SIZE)
        page.emulate_media(color_scheme="light")
        go(page, path, name)
        part = "body" if path == "overview" else "main"
        assert page.evaluate(VIOLATIONS, [part, ALL_RULES]) == [], path
        page.emulate_media(color_scheme="dark")
        assert page.evaluate(VIOLATIONS, [part, COLOURS]) == [], f"{path}, dark"
        assert page.evaluate(EXCESS) <= 0, path
        page.set_viewport_size(NARROW)
        assert page.evaluate(EXCESS) <= 0, f"{path} at 700 pixels"
        page.set_viewport_size(ZOOMED)
        assert page.evaluate(EXCESS) <= 0, f"{path} at 200 %"
        assert page.evaluate(VIOLATIONS, ["body", LAYOUT]) == [], f"{path} at 200 %"


def test_keys_reach_everything(open_page: Open) -> None:
    """CONSOLE acceptance 35: search, screens, rows and help without a pointer."""
    page = open_page("overview")
    page.keyboard.press("/")
    page.get_by_role("textbox", name="Topic, group, broker").fill(ORDERS)
    link = page.locator("dialog").get_by_role("link", name=ORDERS, exact=True)
    expect(link).to_be_visible()
    page.keyboard.press("Enter")
    heading(page, ORDERS)
    page.keyboard.press("g")
    page.keyboard.press("b")
    heading(page, "Brokers")
    expect(page.locator("main")).to_be_focused()
    expect(page.get_by_role("link", name="2", exact=True)).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="2", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    heading(page, "Broker 2")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_grid_is_walked_by_keys_and_opens_a_partition(open_page: Open) -> None:
    """CONSOLE acceptance 6: the grid by keyboard, a table of the same, both live."""
    page = open_page(f"topic?name={ORDERS}")
    expect(page.get_by_text("connected")).to_be_visible()
    with page.expect_response(lambda answer: "/api/v1/grid" in answer.url):
        carry_out(page, {"kind": "create-topic", "name": "another", "partitions": 1})
    page.get_by_role("application").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".readout")).to_contain_text(f"{ORDERS}-3: leader")
    rows = page.get_by_role("group", name="Partitions").get_by_role("row")
    expect(rows).to_have_count(13)
    expect(rows.nth(1)).to_contain_text("30")  # its end: every partition got some of the orders
    page.get_by_role("link", name="Settings").click()
    expect(page.get_by_role("group", name="Settings")).to_contain_text("86400000")
    page.get_by_role("link", name="Producers").click()
    producers = page.get_by_role("group", name="Producers with state").get_by_role("row")
    expect(producers).to_have_count(13)


def test_what_is_not_there_says_so_below_a_heading(
    browser: Browser, signed_in: BrowserContext, seeded: SeededConsole
) -> None:
    """In a context of its own: Chromium calls an answer of 404 an error."""
    context = browser.new_context(viewport=SIZE, storage_state=signed_in.storage_state())
    context.add_init_script(path=AXE)
    page = context.new_page()
    for path, name in MISSING.items():
        page.goto(f"{seeded.address}/c/main/{path}")
        heading(page, name)
        expect(page.get_by_role("alert")).to_be_visible()
        assert page.evaluate(VIOLATIONS, ["main", ALL_RULES]) == [], path
    context.close()


# By screen what is chosen or typed there, by the label of the control; a button is pressed. Each is
# in the address afterwards, so that another browser shows the same.
CHOSEN: dict[str, dict[str, str]] = {
    "brokers": {"leads": PRESSED},
    "topics": {"Filter by name": "rder", "internal topics": TICKED, "partitions": PRESSED},
    f"topic?name={ORDERS}": {"leader": PRESSED},
    "records": {"Topic": ORDERS, "Partition": "3", "Decode": "hex"},
    "groups": {"Filter by name": "bill", "members": PRESSED},
    "group?id=billing": {"committed": PRESSED},
    "group?id=billing&tab=reset": {"To": "shift", "Records": "-5", "Topics": ORDERS},
    "pipelines": {"Filter by name": "clicks"},
    "planner": {"Goal": "replication", "Topics": "payments"},
    f"configs?type=topic&name={ORDERS}": {
        "show all, also defaults": TICKED,
        "Filter settings": "retention",
    },
    "clients": {"Filter by client id or user": "etl"},
    "controller": {"Topic": ORDERS},
    "audit": {"Filter by user, action or subject": "login"},
}
# What a screen shows of what was chosen.
SHOWN = """() => JSON.stringify([...document.querySelectorAll(
  "main input, main select, main th[aria-sort], main [aria-pressed]")].map((each) => [
    each.getAttribute("aria-label") ?? each.labels?.[0]?.innerText ?? each.innerText,
    each.type === "checkbox" ? each.checked : each.value ?? "",
    each.getAttribute("aria-sort"), each.getAttribute("aria-pressed")]))"""


def choose(page: Page, name: str, value: str) -> None:
    main = page.locator("main")
    if value == PRESSED:
        main.get_by_role("button", name=name, exact=True).first.click()
        return
    control = main.get_by_label(name, exact=True).first
    if value == TICKED:
        control.check()
    elif control.evaluate("(each) => each.tagName") == "SELECT":
        control.select_option(value)
    else:
        control.fill(value)
        control.press("Enter")


def test_what_is_chosen_on_any_screen_is_in_the_address(
    open_page: Open, browser: Browser, signed_in: BrowserContext
) -> None:
    """CONSOLE acceptance 36: every address that is copied opens the same state elsewhere."""
    elsewhere = browser.new_context(viewport=SIZE, storage_state=signed_in.storage_state())
    other = elsewhere.new_page()
    for path, choices in CHOSEN.items():
        page = open_page(path)
        untouched = page.evaluate(SHOWN)
        for name, value in choices.items():
            before = page.url
            choose(page, name, value)
            expect(page).not_to_have_url(before)
        expect(page.locator("main .skeleton")).to_have_count(0)
        shown = page.evaluate(SHOWN)
        assert shown != untouched, path
        other.goto(page.url)
        other.wait_for_function(f"(shown) => ({SHOWN})() === shown", arg=shown)
    elsewhere.close()


# By screen or dialog what is typed or chosen there and not sent, by the label of the control.
UNSENT: dict[str, dict[str, str]] = {
    "topics?act=create": {"Name": "invoices", "Partitions": "7"},
    f"topic?name={ORDERS}&act=add": {"Partitions in all": "9"},
    f"topic?name={ORDERS}&act=elect": {"Election": "unclean"},
    "records": {"Topic": "order"},
    f"records?topic={ORDERS}": {"Search": "$.order.id ="},
    f"records?topic={ORDERS}&filter=paid": {"Search": ""},
    f"records?topic={ORDERS}&from=offset:3": {"Offset": "11"},
    f"records?topic={ORDERS}&from=group:billing": {"Group": "fraud"},
    f"records?topic={ORDERS}&schema=1": {"Format": "protobuf", "Message": "shop.Order"},
    f"produce?topic={ORDERS}": {"Partition": "2", "Written as": "base64", "no key": TICKED},
    "group?id=billing&tab=reset": {"To": "offset", "Offset": "12"},
    "planner": {"Goal": "manual", "Topic": ORDERS, "Partitions": "3=1,2", "Throttle in MB/s": "5"},
    "moves?act=throttle": {"MB/s for each broker": "20"},
    "configs?type=topic": {"Topic": "ord"},
    f"configs?type=topic&name={ORDERS}&act=edit+retention.ms": {"retention.ms": "1234"},
    "clients?act=quota": {"User": "alice", "Produce, bytes per second": "5000"},
    "drills?act=drill": {"Action": "pause", "Undone after, seconds": "30"},
    "overview?dialog=%22finder%22": {"Topic, group, broker, setting or screen": "ord"},
}
# Every control that is shown, and what is open.
CONTROLS = """() => JSON.stringify([[...document.querySelectorAll(
  "main input, main select, main textarea, dialog input, dialog select, .timebar")].map((each) => [
    each.getAttribute("aria-label") ?? each.labels?.[0]?.innerText,
    each.type === "checkbox" ? each.checked : each.value ?? ""]),
  [...document.querySelectorAll("dialog h2")].map((each) => each.innerText),
  [...document.querySelectorAll("main button")].map((each) => [each.innerText, each.ariaPressed]),
  [...document.querySelectorAll("main details")].map((each) => each.open)])"""


def type_in(page: Page, name: str, value: str) -> None:
    """Without sending it."""
    part = (
        page.get_by_role("dialog") if page.get_by_role("dialog").count() else page.locator("main")
    )
    control = part.get_by_label(name, exact=True).first
    if value == TICKED:
        control.check()
    elif control.evaluate("(each) => each.tagName") == "SELECT":
        control.select_option(value)
    else:
        control.fill(value)


def same_elsewhere(page: Page, other: Page, shown: str) -> None:
    """What `shown` finds on a page is found in another browser that opens its address."""
    expected = page.evaluate(shown)
    other.goto(page.url)
    expect(other.locator("main h1")).to_be_visible()
    deadline = time.monotonic() + DEADLINE_MS / 1000
    while (found := other.evaluate(shown)) != expected:
        assert time.monotonic() < deadline, f"{page.url}: {found} is not {expected}"
        other.evaluate("new Promise((done) => setTimeout(done, 50))")


def test_what_is_typed_and_not_sent_is_in_the_address(
    open_page: Open, browser: Browser, signed_in: BrowserContext
) -> None:
    """CONSOLE acceptance 36: every form of every screen, before anything is sent."""
    elsewhere = browser.new_context(viewport=SIZE, storage_state=signed_in.storage_state())
    other = elsewhere.new_page()
    for path, typed in UNSENT.items():
        page = open_page(path)
        untouched = page.evaluate(CONTROLS)
        for name, value in typed.items():
            before = page.url
            type_in(page, name, value)
            expect(page).not_to_have_url(before)
        assert page.evaluate(CONTROLS) != untouched, path
        same_elsewhere(page, other, CONTROLS)
    elsewhere.close()


def test_what_is_opened_paused_or_walked_to_is_in_the_address(
    open_page: Open, browser: Browser, signed_in: BrowserContext
) -> None:
    """CONSOLE acceptance 36: panels, pauses, dialogs, the time bar and the cell of a grid."""
    elsewhere = browser.new_context(viewport=SIZE, storage_state=signed_in.storage_state())
    other = elsewhere.new_page()

    def act(path: str, action: Callable[[Page], object], shown: str = CONTROLS) -> None:
        page = open_page(path)
        before = page.evaluate(shown)
        address = page.url
        action(page)
        expect(page).not_to_have_url(address)
        assert page.evaluate(shown) != before, path
        same_elsewhere(page, other, shown)

    act(f"records?topic={ORDERS}&open=3:1", lambda page: page.locator("summary").first.click())
    act(
        "controller?tab=journal",
        lambda page: page.get_by_role("button", name="Pause").click(),
    )
    act(
        f"records?topic={ORDERS}&mode=live",
        lambda page: page.get_by_role("button", name="Pause").click(),
    )
    act("groups", lambda page: page.keyboard.press("?"))
    act("brokers", lambda page: page.keyboard.press("t"))
    readout = "document.querySelector('main .readout')?.innerText"

    def walk(page: Page) -> None:
        page.get_by_role("application").focus()
        for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
            page.keyboard.press(key)

    act(f"topic?name={ORDERS}", walk, readout)
    act("topics?view=map&internal=1", walk, readout)
    elsewhere.close()


def test_what_is_secret_or_of_a_record_is_not_in_the_address(open_page: Open) -> None:
    """Addresses are kept in histories, and sent to colleagues: docs/console.md names the limit."""
    page = open_page(f"produce?topic={ORDERS}")
    page.get_by_role("button", name="Add a header").click()
    for name in ("Key", "Value", "Name"):
        page.get_by_label(name, exact=True).first.fill(f"contents-of-{name}")
    before = page.url
    page.get_by_label("tombstone (the value is null)").check()
    expect(page).not_to_have_url(before)
    assert "contents" not in page.url

    page = open_page("overview")
    page.route(
        "**/api/v1/session",
        lambda route: route.fulfill(
            json=(found := route.fetch().json())
            | {"features": found["features"] | {"security": True}}
        ),
    )
    page.route("**/api/v1/users", lambda route: route.fulfill(json={"items": []}))
    page = open_page("security?act=user")
    form = page.get_by_role("dialog")
    form.get_by_label("Password").fill("do-not-tell")
    before = page.url
    form.get_by_label("Name").fill("alice")
    expect(page).not_to_have_url(before)
    assert "alice" in page.url and "do-not-tell" not in page.url
    page.unroute_all()


# How far the page is scrolled, and the first row in sight of each list.
PLACES = """() => JSON.stringify([Math.round(scrollY), [
  ...document.querySelectorAll("main .scroll")].filter((box) => box.querySelector("tr.row"))
  .map((box) => {
    const head = box.querySelector("thead").getBoundingClientRect().bottom;
    const rows = [...box.querySelectorAll("tr.row")];
    return rows.find((row) => row.getBoundingClientRect().bottom > head + 1).cells[0].innerText;
  })])"""
SCROLL = """() => {
  for (const box of document.querySelectorAll("main .scroll"))
    box.scrollTop = (box.scrollHeight - box.clientHeight) / 2;
  scrollTo(0, (document.documentElement.scrollHeight - innerHeight) / 2);
}"""
LOW: ViewportSize = {"width": 1280, "height": 320}


def test_how_far_a_screen_is_scrolled_is_in_the_address(
    open_page: Open, browser: Browser, signed_in: BrowserContext
) -> None:
    """CONSOLE acceptance 36: the first row in sight of a list, and the place on a page."""
    elsewhere = browser.new_context(viewport=LOW, storage_state=signed_in.storage_state())
    other = elsewhere.new_page()
    scrolled = set()
    for path in SCREENS:
        page = open_page(path)
        page.set_viewport_size(LOW)
        untouched = page.evaluate(PLACES)
        page.evaluate(SCROLL)
        if page.evaluate(PLACES) == untouched:
            continue
        scrolled.add(path.partition("?")[0])
        expect(page).to_have_url(re.compile("scroll="))
        same_elsewhere(page, other, PLACES)
        page.set_viewport_size(SIZE)
    elsewhere.close()
    assert scrolled >= {"overview", "topics", "topic", "groups", "records", "controller", "planner"}


def test_filters_and_order_are_in_the_address(open_page: Open) -> None:
    """CONSOLE acceptance 36: what is copied from the address bar opens the same state."""
    page = open_page("topics")
    page.get_by_role("searchbox", name="Filter by name").fill("rder")
    page.get_by_role("button", name="partitions").click()
    expect(page).to_have_url(re.compile(r"q=rder"))
    expect(page).to_have_url(re.compile(r"sort=-partitions"))
    again = open_page(
        urlsplit(page.url).path.removeprefix("/c/main/") + "?" + urlsplit(page.url).query
    )
    expect(again.get_by_role("searchbox", name="Filter by name")).to_have_value("rder")
    expect(again.get_by_role("columnheader", name="partitions")).to_have_attribute(
        "aria-sort", "descending"
    )
    expect(again.locator("tbody tr.row").first).to_contain_text(ORDERS)


def test_what_clients_send_is_text_on_every_screen(open_page: Open) -> None:
    """CONSOLE acceptance 28, 29 and 32: nothing runs, nothing hides, every name has a page."""
    for group in HOSTILE_GROUPS:
        page = open_page("group?" + urlencode({"id": group}))
        expect(page.locator("main h1")).to_contain_text(group[:6])
    page = open_page("groups")
    expect(page.get_by_role("link", name="../../etc", exact=True)).to_be_visible()
    page = open_page("records?topic=payments&p=0&open=0:0")
    for escape in ("\\u202e", "\\0", "\\e", "\\u200b"):
        expect(page.get_by_label("value", exact=True)).to_contain_text(escape)
    expect(page.get_by_role("complementary")).to_contain_text("header <script>")
    page = open_page("records?topic=payments&p=1")
    expect(page.get_by_role("link", name="1 @ 0")).to_be_visible()
    assert page.evaluate(EXCESS) <= 0
    page = open_page("pipelines")
    page.get_by_role("link", name=HOSTILE_PIPELINE.replace("/", " / ", 1)).click()
    expect(page.get_by_role("group", name="Dead letters")).to_contain_text("<script>")
    assert page.evaluate(EXCESS) <= 0
    page = open_page("topic?name=" + "t" * 249)
    assert page.evaluate(EXCESS) <= 0
    assert page.evaluate("document.title") != "run"
    assert page.locator("main script, main img").count() == 0


def test_what_was_opened_or_begun_is_in_the_address(
    open_page: Open, browser: Browser, signed_in: BrowserContext
) -> None:
    """CONSOLE acceptance 36: a tab, a record, a search, a live tail and a plan that waits."""
    elsewhere = browser.new_context(viewport=SIZE, storage_state=signed_in.storage_state())
    elsewhere.set_default_timeout(DEADLINE_MS)
    other = elsewhere.new_page()

    page = open_page(f"topic?name={ORDERS}")
    page.get_by_role("link", name="Settings", exact=True).click()
    expect(page).to_have_url(re.compile("tab="))
    other.goto(page.url)
    expect(other.get_by_role("group", name="Settings")).to_contain_text("86400000")

    page = open_page(f"records?topic={ORDERS}&p=3")
    page.get_by_role("link", name="3 @ 1", exact=True).click()
    record = page.get_by_role("complementary", name="Record")
    expect(record.get_by_label("value", exact=True)).to_be_visible()
    other.goto(page.url)
    value = record.get_by_label("value", exact=True).inner_text()
    there = other.get_by_role("complementary", name="Record").get_by_label("value", exact=True)
    expect(there).to_have_text(value, use_inner_text=True)

    page = open_page(f"records?topic={ORDERS}")
    page.get_by_label("Search", exact=True).fill("key = nobody")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_role("group", name="Search")).to_contain_text("done")
    other.goto(page.url)
    expect(other.get_by_role("group", name="Search")).to_contain_text("done")
    expect(other.get_by_role("textbox", name="Search")).to_have_value("key = nobody")

    page = open_page(f"records?topic={ORDERS}")
    page.get_by_role("button", name="● Live").click()
    expect(page).to_have_url(re.compile("mode=live"))
    other.goto(page.url)
    live = other.get_by_role("button", name="● Live")
    expect(live).to_have_attribute("aria-pressed", "true")

    page = open_page("topic?name=empty")
    page.get_by_role("button", name="Delete", exact=True).click()
    plan = page.get_by_role("dialog").get_by_role("group", name="Plan")
    expect(plan).to_contain_text("nothing has changed yet")
    other.goto(page.url)
    there = other.get_by_role("dialog").get_by_role("group", name="Plan")
    expect(there).to_have_text(plan.inner_text(), use_inner_text=True)
    elsewhere.close()


def test_a_group_is_deleted_from_its_own_page(open_page: Open) -> None:
    """Nothing asks for it while it goes, nor when the dialog is closed: a browser would log it."""
    page = open_page("groups")
    expect(page.get_by_role("link", name="%2e%2e", exact=True)).to_be_visible()
    page = open_page("group?" + urlencode({"id": "%2e%2e", "act": "delete"}))
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill("%2e%2e")
    dialog.get_by_role("button", name="Delete group").click()
    expect(dialog).to_contain_text("Deleted.")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("link", name="Groups", exact=True).first.click()
    heading(page, "Groups")
    expect(page.get_by_role("link", name="../../etc", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="%2e%2e", exact=True)).to_have_count(0)


def test_offsets_are_reset_by_keys_alone_and_become_what_the_preview_said(
    open_page: Open,
) -> None:
    """CONSOLE acceptance 21 and 35: a preview, then the act."""
    page = open_page("group?id=billing&tab=reset")
    page.get_by_label("To", exact=True).focus()
    page.get_by_label("To", exact=True).select_option("latest")
    page.get_by_role("button", name="Preview").focus()
    page.keyboard.press("Enter")
    plan = page.get_by_role("group", name="Plan")
    expect(plan).to_contain_text("nothing has changed yet")
    rows = plan.get_by_role("row")
    expect(rows).to_have_count(13)
    expect(page).to_have_url(re.compile(r"plan=p"))
    again = open_page("group?" + urlsplit(page.url).query)
    again.get_by_role("button", name="Apply").focus()
    again.keyboard.press("Enter")
    expect(again.get_by_role("group", name="Plan")).to_contain_text("The offsets are set.")
    page = open_page("audit")
    expect(page.get_by_role("row", name=re.compile("reset-offsets.*billing")).first).to_be_visible()


def test_a_record_is_produced_read_back_and_found(open_page: Open) -> None:
    """CONSOLE acceptance 27: key, value and headers as they were written; and search finds it."""
    page = open_page("produce?topic=clicks")
    page.get_by_label("Key", exact=True).fill("user-ü")
    page.get_by_label("Value", exact=True).fill('{"order": {"id": 99001}}')
    page.get_by_role("button", name="Add a header").click()
    page.get_by_label("Name").fill("trace")
    page.get_by_role("textbox", name="Value").last.fill("9f")
    page.get_by_role("button", name="Preview").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Produce").focus()
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Open it").click()
    record = page.get_by_role("complementary", name="Record")
    expect(record).to_contain_text("user-ü")
    expect(record).to_contain_text("header trace")
    expect(record).to_contain_text("99001")
    page.get_by_role("button", name="Close the record").click()
    page.get_by_label("Search", exact=True).fill("$.order.id = 99001")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_role("group", name="Search")).to_contain_text("done")
    found = page.get_by_role("group", name="Records found").get_by_role("row")
    expect(found).to_have_count(2)


def test_records_appear_in_the_tail_as_they_are_written(open_page: Open) -> None:
    page = open_page("records?topic=empty&mode=live")
    expect(page.get_by_role("group", name="Live tail").get_by_text("live")).to_be_visible()
    expect(page.get_by_text("Waiting for records.")).to_be_visible()
    plan = {"kind": "produce", "topic": "empty", "p": 0, "key": "k", "value": "just now"}
    carry_out(page, {**plan, "headers": [], "encoding": "text"})
    rows = page.get_by_role("group", name="Records as they are written")
    expect(rows).to_contain_text("just now")


def test_a_topic_is_created_changed_and_deleted_by_plans(open_page: Open) -> None:
    page = open_page("topics?act=create")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("short-lived")
    dialog.get_by_label("Partitions").fill("2")
    page.get_by_role("button", name="Preview").click()
    dialog.get_by_role("button", name="Create", exact=True).click()
    expect(dialog).to_contain_text("Created.")
    page = open_page("topic?name=short-lived&act=delete")
    dialog = page.get_by_role("dialog")
    button = dialog.get_by_role("button", name="Delete topic")
    expect(button).to_be_disabled()
    dialog.get_by_role("textbox").fill("short-lived")
    button.click()
    expect(dialog).to_contain_text("Deleted.")


def test_the_planner_shows_reason_and_cost_before_anything_moves(open_page: Open) -> None:
    page = open_page("planner")
    page.get_by_role("button", name="Plan", exact=True).click()
    expect(page.get_by_role("group", name="Moves")).to_contain_text("archive-")
    expect(page.get_by_role("group", name="Cost per broker").get_by_role("row")).not_to_have_count(
        1
    )
    page.get_by_role("button", name="Start moving").click()
    expect(page.get_by_text("The moves have begun")).to_be_visible()


def test_the_time_bar_goes_to_the_change_before(open_page: Open) -> None:
    """CONSOLE acceptance 36: the moment is in the address, and every link keeps it."""
    page = open_page(f"partition?topic={ORDERS}&p=0")
    expect(page.get_by_role("list", name="Changes of this partition")).to_be_visible()
    page.keyboard.press("t")
    page.get_by_role("button", name="Change before").click()
    expect(page).to_have_url(re.compile(r"at=2"))
    expect(page.get_by_text(re.compile(r"as of \d"))).to_be_visible()
    page.get_by_role("link", name="Overview", exact=True).click()
    heading(page, "Overview")
    expect(page).to_have_url(re.compile(r"at=2"))
    page.get_by_role("button", name="Now", exact=True).click()
    expect(page).not_to_have_url(re.compile(r"at="))


def test_a_console_that_does_not_answer_is_said_so_and_comes_back(
    browser: Browser, seeded: SeededConsole
) -> None:
    context = browser.new_context(viewport=SIZE)
    page = context.new_page()
    page.goto(seeded.link)
    expect(page.get_by_text("connected")).to_be_visible()
    context.set_offline(True)
    page.get_by_role("link", name="Brokers", exact=True).click()
    expect(page.get_by_role("banner").get_by_text("console does not answer")).to_be_visible()
    context.set_offline(False)
    expect(page.get_by_text("connected")).to_be_visible()
    context.close()


def test_a_wrong_token_is_refused_and_the_form_takes_the_right_one(
    browser: Browser, seeded: SeededConsole
) -> None:
    context = browser.new_context(viewport=SIZE)
    page = context.new_page()
    page.goto(f"{seeded.address}/#token=wrong")
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Token").fill(seeded.link)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Overview", exact=True)).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    context.close()


def test_a_drill_is_run_and_its_timeline_read(open_page: Open) -> None:
    """CONSOLE acceptance 40: from the screen; what the figures are worth is tested elsewhere."""
    page = open_page("drills")
    page.get_by_role("button", name="New drill").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Broker").select_option("2")
    dialog.get_by_label("Undone after, seconds").fill("1")
    dialog.get_by_role("button", name="Preview").click()
    dialog.get_by_role("button", name="Run the drill").click()
    dialog.get_by_role("link", name="timeline").click()
    heading(page, "Drill: kill broker 2")
    expect(page.get_by_role("list", name="Timeline")).to_contain_text("SIGKILL to broker 2")
    expect(page.locator(".page-head")).to_contain_text("done", timeout=60_000)
    expect(page.get_by_role("list", name="Timeline")).to_contain_text("BrokerChange new=[2]")


def test_a_killed_broker_is_on_the_overview_with_the_reason(
    open_page: Open, seeded: SeededConsole
) -> None:
    """CONSOLE acceptance 10: without a reload, with what the controller's journal says."""
    page = open_page("overview")
    controller = seeded.cluster.controller_id()
    victim = next(id for id in seeded.cluster.ids if id != controller)
    seeded.cluster.kill(victim)
    problems = page.get_by_role("list", name="Problems")
    expect(problems).to_contain_text(f"broker {victim}", ignore_case=True)
    expect(problems).to_contain_text("BrokerChange")
    page.keyboard.press("g")
    page.keyboard.press("k")
    journal = page.get_by_role("list", name="Journal, newest first")
    expect(journal).to_contain_text(f"dead=[{victim}]")
    seeded.cluster.start(victim)
