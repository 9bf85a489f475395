"""How a client's connections are secured: its settings, real files, and threads for slow steps."""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.security.client_settings import InvalidSecurity, is_security_setting
from odradek.wire.properties import decode_properties

if TYPE_CHECKING:
    from odradek.security.client import ClientSecurity

__all__ = ["InvalidSecurity", "connection_security", "settings_file"]


def connection_security(settings: Mapping[str, str]) -> "ClientSecurity | None":
    """None for connections in plain text. Raises InvalidSecurity."""
    if not any(map(is_security_setting, settings)):
        return None
    from odradek.security.client import ClientSecurity

    made = ClientSecurity.read(
        settings,
        read_file=lambda path: Path(path).read_bytes(),
        now_ms=lambda: int(time.time() * 1000),
        offload=_in_thread,
    )
    return None if made.tls is None and made.login is None else made


def settings_file(path: str) -> dict[str, str]:
    """The settings in a properties file. Raises OSError."""
    return decode_properties(Path(path).read_text(encoding="latin-1"))


async def _in_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, work)
