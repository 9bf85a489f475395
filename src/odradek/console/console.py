"""The parts of one console, and their life."""

import time
from pathlib import Path

from odradek.console.access import Gate, Logins
from odradek.console.accounts import Accounts
from odradek.console.audit import Audit
from odradek.console.collector import Collector
from odradek.console.link import Link
from odradek.console.options import Options


class Console:
    """What every route works with."""

    def __init__(self, options: Options, token: str) -> None:
        """Raises AccountsError, InvalidSecurity, or ValueError for a wrong bootstrap address."""
        self.options = options
        accounts = Accounts.read(options.users) if options.users is not None else None
        self.audit = Audit(options.audit_file)
        self.gate = Gate(options, Logins(token, accounts), self.audit)
        self.link = Link(
            options.bootstrap,
            options.security,
            timeout_s=options.timeout_s,
            token=options.broker_token,
        )
        self.collector = Collector(self.link)

    @property
    def static(self) -> Path:
        return Path(__file__).parent / "static"

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def start(self) -> None:
        self.collector.start()

    async def close(self) -> None:
        await self.collector.close()
        await self.link.close()
