"""The gate in front of every request: known host, own origin, a login, a right.

docs/spec/console-api.md sections 1 and 2. A page of another site that a browser is made to load can
reach this port, also on loopback, and also under a name of its own that resolves here. So `Host`
must be one of ours, `Origin` and `Sec-Fetch-Site` must say that our own page asks, and a change
needs a content type that no form can send.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict, deque
from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from odradek.console.accounts import LOCAL, Account, Accounts, Right
from odradek.console.audit import Audit
from odradek.console.options import Options, is_loopback
from odradek.console.web import Problem

SESSIONS_MAX = 1_000
SESSION_S = 12 * 3600.0
# Wrong logins from all addresses together, in a minute: guessing a password takes more.
FAILURES_MAX = 20
FAILURES_S = 60.0
SAFE_METHODS = frozenset({"GET", "HEAD"})
# The page itself and what it loads are no secret; everything else is.
OPEN_PREFIXES = ("/static/", "/c/")
OPEN_PATHS = frozenset(
    {"/", "/login", "/favicon.ico", "/livez", "/readyz", "/api/v1/login", "/api/v1/session"}
)
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class Session:
    """A login, and until when it lasts on the monotonic clock."""

    account: Account
    login: str
    until_s: float


class Logins:
    """Exchanges tokens and passwords for sessions. A session is kept by the hash of its cookie."""

    def __init__(self, token: str, accounts: Accounts | None) -> None:
        self._token = token
        self.accounts = accounts
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self._failures: deque[float] = deque()
        # Logins that are being checked may turn out wrong, too.
        self._checking = 0

    @property
    def methods(self) -> list[str]:
        return ["password"] if self.accounts is not None else ["token"]

    async def log_in(self, body: dict[str, object]) -> tuple[str, Session]:
        """The cookie's value and the session. Raises Problem."""
        now = time.monotonic()
        while self._failures and now - self._failures[0] >= FAILURES_S:
            self._failures.popleft()
        if len(self._failures) + self._checking >= FAILURES_MAX:
            raise Problem(429, "too many wrong logins; wait a minute")
        self._checking += 1
        try:
            account, login = await self._account(body)
        finally:
            self._checking -= 1
        if account is None:
            self._failures.append(now)
            raise Problem(403, "this login is not right")
        cookie = secrets.token_urlsafe(32)
        session = Session(account, login, now + SESSION_S)
        self._sessions[_digest(cookie)] = session
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return cookie, session

    async def _account(self, body: dict[str, object]) -> tuple[Account | None, str]:
        token, user, password = body.get("token"), body.get("user"), body.get("password")
        if isinstance(token, str) and self.accounts is None:
            return (LOCAL if _equal(token, self._token) else None), "token"
        if self.accounts is not None and isinstance(user, str) and isinstance(password, str):
            # scrypt takes tens of milliseconds: not on the loop.
            return await asyncio.to_thread(self.accounts.check, user, password[:1024]), "password"
        return None, ""

    def log_out(self, cookie: str) -> None:
        self._sessions.pop(_digest(cookie), None)

    def session_of(self, cookie: str) -> Session | None:
        session = self._sessions.get(_digest(cookie))
        if session is not None and session.until_s < time.monotonic():
            del self._sessions[_digest(cookie)]
            return None
        return session

    def bearer(self, token: str) -> Account | None:
        """For programs: the token itself, where there are no users."""
        return LOCAL if self.accounts is None and _equal(token, self._token) else None


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).digest()


def _equal(given: str, kept: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), kept.encode())


class Gate:
    """Decides about requests. Raises Problem for those that go no further."""

    def __init__(self, options: Options, logins: Logins, audit: Audit) -> None:
        self._options = options
        self.logins = logins
        self._audit = audit
        self.hosts: frozenset[str] = options.known_hosts(options.port)
        self.cookie = f"odradek_console_{options.port}"
        self._scheme = "https" if options.has_tls else "http"

    def listening_on(self, port: int) -> None:
        """To be called with the port that the server got."""
        self.hosts = self._options.known_hosts(port)
        self.cookie = f"odradek_console_{port}"

    def admit(self, connection: HTTPConnection, method: str) -> Session | None:
        """The session of a request that may go on; None where it needs none."""
        path = connection.url.path
        try:
            self._check_origin(connection, method, path)
            session = self._session(connection)
            if session is None and not _is_open(path, connection, self._options):
                raise Problem(401, "log in first", login=self.logins.methods)
        except Problem as problem:
            if problem.status == 403 or (problem.status == 401 and method not in SAFE_METHODS):
                user = "" if problem.status == 401 else self._user(connection)
                self._audit.record(
                    user,
                    address_of(connection),
                    "refused",
                    f"{method} {path}",
                    outcome=problem.detail,
                )
            raise
        return session

    def _check_origin(self, connection: HTTPConnection, method: str, path: str) -> None:
        headers = connection.headers
        host = headers.get("host", "").lower()
        if host not in self.hosts:
            raise Problem(403, "this console is not known by the name in Host")
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        safe = method in SAFE_METHODS
        if origin is not None and origin.lower() not in self._origins(host):
            raise Problem(403, "Origin is another site")
        if site is not None and site != "same-origin" and not (safe and site == "none"):
            raise Problem(403, "the request comes from another site")
        if safe:
            return
        bearer = headers.get("authorization", "").startswith("Bearer ")
        if origin is None and site is None and not bearer:
            raise Problem(403, "a change needs Origin or Sec-Fetch-Site")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            # A form could send any other type from any site.
            raise Problem(
                403 if "form" in kind or kind == "text/plain" else 415,
                "a change is sent as application/json",
            )

    def _origins(self, host: str) -> tuple[str, ...]:
        if self._options.proxy is not None:
            return f"https://{host}", f"http://{host}"
        return (f"{self._scheme}://{host}",)

    def _session(self, connection: HTTPConnection) -> Session | None:
        options = self._options
        peer = connection.client.host if connection.client else ""
        if options.proxy is not None and peer == options.proxy:
            name = connection.headers.get(options.proxy_header)
            if name:
                known = self.logins.accounts.named(name) if self.logins.accounts else None
                return Session(known or Account(name, "viewer"), "proxy", float("inf"))
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        if scheme == "Bearer":
            account = self.logins.bearer(token)
            return None if account is None else Session(account, "bearer", float("inf"))
        cookie = connection.cookies.get(self.cookie)
        return None if cookie is None else self.logins.session_of(cookie)

    def _user(self, connection: HTTPConnection) -> str:
        session = self._session(connection)
        return "" if session is None else session.account.name


def _is_open(path: str, connection: HTTPConnection, options: Options) -> bool:
    if path == "/metrics":
        peer = connection.client.host if connection.client else ""
        return options.is_loopback and is_loopback(peer)
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIXES)


def address_of(connection: HTTPConnection) -> str:
    return connection.client.host if connection.client else ""


def account_of(request: Request) -> Account:
    session: Session | None = request.scope.get("odradek.session")
    if session is None:
        raise Problem(401, "log in first")
    return session.account


def require(request: Request, right: Right) -> None:
    """Raises Problem if the user of this request has no such right."""
    if right is not Right.NONE and not account_of(request).may(right):
        raise Problem(403, f"this needs the right to {right.value}", right=right.value)


def require_records(request: Request, topic: str) -> None:
    if not account_of(request).may_read(topic):
        raise Problem(403, f"records of {topic!r} may not be read", right=Right.RECORDS.value)


class Guard:
    """The gate as a layer around the application, and the headers of every answer."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if "cache-control" not in headers:
                    headers["Cache-Control"] = "no-store"
            await send(message)

        try:
            scope["odradek.session"] = self._gate.admit(HTTPConnection(scope), scope["method"])
        except Problem as problem:
            refusal: Response = problem.response()
            await refusal(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)
