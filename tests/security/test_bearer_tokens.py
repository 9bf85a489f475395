"""Where a client's token comes from: an endpoint that grants it."""

import base64
import json
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from odradek.security.bearer_tokens import token_source
from odradek.security.exchange import SaslError
from odradek.security.jaas import JaasEntry, Module

ASKED: list[tuple[str, dict[str, list[str]]]] = []


class Endpoint(BaseHTTPRequestHandler):
    answer: bytes = b""
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        ASKED.append((self.headers["Authorization"], urllib.parse.parse_qs(body)))
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def endpoint(answer: bytes, status: int = 200) -> Iterator[str]:
    handler = type("Handler", (Endpoint,), {"answer": answer, "status": status})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    ASKED.clear()
    yield f"http://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    server.server_close()
    thread.join()


def granted(url: str, **settings: str) -> str:
    options = {"clientId": "me too", "clientSecret": "a/b", "scope": "kafka"}
    jaas = JaasEntry(Module.OAUTHBEARER, "required", options)
    written = {"sasl.oauthbearer.token.endpoint.url": url}
    written |= {name.replace("_", "."): value for name, value in settings.items()}
    return token_source(written, jaas, lambda path: b"", lambda: 0)()


def test_a_token_is_granted_for_id_and_secret() -> None:
    with endpoint(json.dumps({"access_token": "a.b.c"}).encode()) as url:
        assert granted(url) == "a.b.c"
        assert granted(url, sasl_oauthbearer_header_urlencode="true") == "a.b.c"
    (plain, form), (encoded, _) = ASKED
    assert base64.b64decode(plain.removeprefix("Basic ")) == b"me too:a/b"
    assert base64.b64decode(encoded.removeprefix("Basic ")) == b"me+too:a%2Fb"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}


@pytest.mark.parametrize(
    ("answer", "status"),
    [(b"", 200), (b"[1]", 200), (b"{}", 200), (b'{"access_token": 5}', 200), (b"{}", 401)],
)
def test_an_endpoint_without_a_token_is_an_error_without_the_secret(
    answer: bytes, status: int
) -> None:
    with endpoint(answer, status) as url, pytest.raises(SaslError) as refused:
        granted(url)
    assert "a/b" not in str(refused.value)
