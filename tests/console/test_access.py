"""Who gets in, and from where."""

import asyncio
import stat
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.console.consoles import HOST, ORIGIN, TOKEN, Browser

from odradek.console.access import FAILURES_MAX
from odradek.console.accounts import Accounts, add_user
from odradek.console.app import application
from odradek.console.console import Console
from odradek.console.events import STREAMS_MAX
from odradek.console.options import InvalidOptions, Options
from odradek.console.server import link, read_token

NOWHERE = "127.0.0.1:1"


def browser_of(tmp_path: Path, **options: object) -> tuple[Console, Browser]:
    console = Console(Options(NOWHERE, audit_file=tmp_path / "audit", **options), TOKEN)  # type: ignore[arg-type]
    return console, Browser(application(console))


async def test_33_what_does_not_come_from_our_own_page_is_refused(tmp_path: Path) -> None:
    console, browser = browser_of(tmp_path)
    body = {"token": TOKEN}
    refused: dict[str, dict[str, str | None]] = {
        "foreign Host": {"host": "evil.example:8092"},
        "foreign Origin": {"origin": "http://evil.example"},
        "null Origin": {"origin": "null"},
        "foreign fetch": {"sec-fetch-site": "cross-site"},
        "no Origin": {"origin": None},
        "form": {"content-type": "application/x-www-form-urlencoded"},
        "text": {"content-type": "text/plain"},
    }
    for name, headers in refused.items():
        before = len(console.audit.lines)
        answer = await browser.ask("POST", "/api/v1/login", body, headers=headers)
        assert answer.status == 403, name
        assert answer.headers["content-type"].startswith("application/problem+json"), name
        assert "set-cookie" not in answer.headers, name
        assert len(console.audit.lines) == before + 1, name
    assert (await browser.ask("GET", "/api/v1/overview")).status == 401
    assert (await browser.ask("POST", "/api/v1/logout", {})).status == 401
    wrong = await browser.ask("POST", "/api/v1/login", {"token": TOKEN[:-1]})
    assert wrong.status == 403
    assert TOKEN not in (tmp_path / "audit").read_text()


async def test_a_token_is_exchanged_for_a_cookie_that_scripts_cannot_read(tmp_path: Path) -> None:
    _, browser = browser_of(tmp_path)
    answer = await browser.ask("POST", "/api/v1/login", {"token": TOKEN})
    assert answer.status == 200
    for part in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert part in answer.headers["set-cookie"]
    assert TOKEN not in answer.headers["set-cookie"]
    session = await browser.get("/session")
    assert session["user"] == "local" and "administer" in session["can"]
    assert (await browser.ask("POST", "/api/v1/logout", {})).status == 204
    browser.cookie = answer.headers["set-cookie"].split(";")[0]
    assert (await browser.ask("GET", "/api/v1/session")).status == 401
    # A cookie that somebody has planted before does not become the session.
    again = await browser.ask("POST", "/api/v1/login", {"token": TOKEN})
    assert again.headers["set-cookie"].split(";")[0] != answer.headers["set-cookie"].split(";")[0]


async def test_tabs_beyond_the_limit_are_refused_and_the_others_go_on(tmp_path: Path) -> None:
    console, browser = browser_of(tmp_path)
    await browser.log_in()
    async with AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(browser.stream("/events", watch="overview"))
            for _ in range(STREAMS_MAX)
        ]
        for stream in streams:
            await stream.next("hello")
        answer = await browser.ask("GET", "/api/v1/events", watch="overview")
        assert answer.status == 429
        console.hub.touch("overview")
        await streams[-1].next("picture")
    console.end_streams()


async def test_every_answer_has_the_headers_that_contain_what_gets_through(tmp_path: Path) -> None:
    _, browser = browser_of(tmp_path)
    for path in ("/", "/c/main/topics", "/api/v1/session", "/static/nothing", "/elsewhere"):
        headers = (await browser.ask("GET", path)).headers
        assert "script-src 'self'" in headers["content-security-policy"], path
        assert "require-trusted-types-for 'script'" in headers["content-security-policy"], path
        assert headers["x-content-type-options"] == "nosniff", path
        assert "frame-ancestors 'none'" in headers["content-security-policy"], path
        assert headers["x-frame-options"] == "DENY" and headers["referrer-policy"] == "no-referrer"
    traversals = ("/static/../app.py", "/static/..%2fapp.py", "/static//etc/passwd")
    for path in (*traversals, "/static/a%00b", "/static/" + "a" * 300, "/static/" + "a/" * 3000):
        assert (await browser.ask("GET", path)).status == 404, path


async def test_guessing_ends_after_some_wrong_logins(tmp_path: Path) -> None:
    _, browser = browser_of(tmp_path)
    found = [
        (await browser.ask("POST", "/api/v1/login", {"token": f"guess {n}"})).status
        for n in range(25)
    ]
    assert found[:20] == [403] * 20 and found[20:] == [429] * 5


async def test_guessing_all_at_once_is_no_way_around_that(tmp_path: Path) -> None:
    add_user(tmp_path / "users", "alice", "wonderland", "viewer", [])
    _, browser = browser_of(tmp_path, users=tmp_path / "users")
    guess = {"user": "alice", "password": "?"}
    found = await asyncio.gather(
        *(browser.ask("POST", "/api/v1/login", guess) for _ in range(FAILURES_MAX + 5))
    )
    assert sorted(each.status for each in found) == [403] * FAILURES_MAX + [429] * 5


async def test_users_have_roles_and_records_of_their_own(tmp_path: Path) -> None:
    users = tmp_path / "users"
    add_user(users, "alice", "wonderland", "operator", ["orders"])
    assert stat.S_IMODE(users.stat().st_mode) == 0o600
    assert "wonderland" not in users.read_text()
    assert Accounts.read(users).check("alice", "wonder") is None
    _, browser = browser_of(tmp_path, users=users)
    assert (await browser.ask("POST", "/api/v1/login", {"token": TOKEN})).status == 403
    session = await browser.post("/login", {"user": "alice", "password": "wonderland"})
    assert session["can"] == ["operate", "read", "records"]


def test_33_it_does_not_start_open_to_others(tmp_path: Path) -> None:
    pem = tmp_path / "pem"
    refused: list[dict[str, object]] = [
        {"host": "0.0.0.0"},
        {"host": "0.0.0.0", "certificate": pem},
        {"host": "10.0.0.1", "users": pem},
        {"host": "example.org"},
        {"proxy": "not an address"},
        {"key": pem},
    ]
    for options in refused:
        with pytest.raises(InvalidOptions):
            Options(NOWHERE, **options).check()  # type: ignore[arg-type]
    allowed: list[dict[str, object]] = [
        {},
        {"host": "::1"},
        {"host": "0.0.0.0", "certificate": pem, "users": pem},
        {"host": "0.0.0.0", "proxy": "10.0.0.9"},
    ]
    for options in allowed:
        Options(NOWHERE, **options).check()  # type: ignore[arg-type]


def test_the_token_is_kept_where_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "state" / "token"
    token = read_token(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_token(path) == token
    path.chmod(0o644)
    assert read_token(path) != token, "others may have read it"
    assert link(Options(NOWHERE), 8092, token) == f"{ORIGIN}/#token={token}"
    assert HOST in ORIGIN
