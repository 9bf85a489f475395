"""The console behind a real socket."""

import asyncio
import socket
from pathlib import Path

from tests.console.consoles import TOKEN

from odradek.console.console import Console
from odradek.console.options import Options
from odradek.console.server import Server


async def test_the_parts_of_an_answer_do_not_wait_for_acknowledgements(tmp_path: Path) -> None:
    """Head and body are two writes: without TCP_NODELAY the second waits 40 ms for the first."""
    options = Options("127.0.0.1:1", port=0, audit_file=tmp_path / "audit", timeout_s=0.1)
    server = Server(Console(options, TOKEN))
    port = server.bind()
    serving = asyncio.ensure_future(server.serve())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
    assert (await reader.readline()).split()[1] == b"200"
    (connection,) = server._server.server_state.connections
    accepted = connection.transport.get_extra_info("socket")
    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    writer.close()
    server.stop()
    await serving
