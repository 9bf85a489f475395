"""The console as a process: its token, its HTTP server, its end."""

import asyncio
import contextlib
import gc
import os
import secrets
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from odradek.console.accounts import write_private
from odradek.console.app import application
from odradek.console.connection import ClientConnection
from odradek.console.console import Console
from odradek.console.options import Options

TOKEN_BYTES = 24
SHUTDOWN_S = 2
# New objects before the collector looks for cycles among them. By default it does at each 700: an
# answer about fifty topics has more, and goes away without its help.
NEW_OBJECTS_MAX = 20_000


class Server:
    """Serves one console until it is stopped."""

    def __init__(self, console: Console) -> None:
        self._console = console
        options = console.options
        self._server = uvicorn.Server(
            uvicorn.Config(
                application(console),
                http=ClientConnection,
                loop="asyncio",
                ws="none",
                lifespan="on",
                log_config=None,
                log_level="error",  # what strangers send wrong would fill a log
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=SHUTDOWN_S,
                ssl_certfile=options.certificate,
                ssl_keyfile=options.key,
            )
        )
        # Signals end it through `stop`: the program around it may have handlers of its own.
        self._server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]

    def bind(self) -> int:
        """Listen; the port that it got. Raises OSError."""
        options = self._console.options
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        # Named, or asyncio leaves out TCP_NODELAY: an answer in two writes then waits 40 ms for the
        # acknowledgement of the first.
        self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((options.host, options.port))
            # A browser that opens the link at once waits for its answer.
            self._socket.listen()
        except OSError:
            self._socket.close()
            raise
        port: int = self._socket.getsockname()[1]
        self._console.gate.listening_on(port)
        return port

    async def serve(self) -> None:
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        self._console.end_streams()
        self._server.should_exit = True


def run(options: Options, announce: Callable[[str], None]) -> None:
    """Until SIGINT or SIGTERM. `announce` gets the link to open. Raises OSError if the address is
    taken, AccountsError or ValueError for options that are wrong."""

    async def main() -> None:
        token = read_token(options.token_file)
        server = Server(console := Console(options, token))
        port = server.bind()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, server.stop)
        # Modules and routes stay: looking through them at each full collection of cycles would hold
        # up every answer for some 20 ms.
        gc.collect()
        gc.freeze()
        gc.set_threshold(NEW_OBJECTS_MAX)
        orphaned = asyncio.ensure_future(_when_alone(console, server))
        announce(link(options, port, None if console.gate.logins.accounts else token))
        await server.serve()
        orphaned.cancel()

    asyncio.run(main())


async def _when_alone(console: Console, server: Server) -> None:
    """Without the program that holds the brokers there is no cluster left to look at."""
    if console.drills is not None:
        await console.drills.holder.gone.wait()
        server.stop()


def link(options: Options, port: int, token: str | None) -> str:
    """The token is in the fragment: browsers send it to no server, so it is in no log."""
    scheme = "https" if options.has_tls else "http"
    host = f"[{options.host}]" if ":" in options.host else options.host
    address = f"{scheme}://{host}:{port}/"
    if options.metrics_only:
        return f"{address}metrics"
    return address + (f"#token={token}" if token is not None else "")


def read_token(path: Path | None) -> str:
    """The token that is kept in this file, or a new one. Raises OSError."""
    if path is None:
        return secrets.token_urlsafe(TOKEN_BYTES)
    with contextlib.suppress(FileNotFoundError):
        if os.stat(path).st_mode & 0o077 == 0 and (kept := path.read_text().strip()):
            return kept
    token = secrets.token_urlsafe(TOKEN_BYTES)
    write_private(path, f"{token}\n")
    return token
