"""The public keys that signed tokens are checked with (JWKS), fetched now and then.

docs/spec/security.md, section 3.5. A broker does not start without them. They are fetched again
every hour, and when a token names a key that is not among them: the token is rejected, and the
client's next login finds the key if it has come. Fetching and parsing happen off the loop, and what
fails leaves the keys before in place.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from odradek.log.offload import Offload
from odradek.security.oauthbearer import PublicKey, SignedTokens, parse_jwks
from odradek.wire.errors import ErrorCode, KafkaError

__all__ = ["KeySet", "KeySetTimes"]

# A client can name any key: each one is requested once in this time, and so many are remembered.
UNKNOWN_KEY_PAUSE_S = 60.0
UNKNOWN_KEYS_MAX = 16

logger = logging.getLogger(__name__)


class KeySetTimes(NamedTuple):
    """`sasl.oauthbearer.jwks.endpoint.refresh.ms`, `.retry.backoff.ms`, `.retry.backoff.max.ms`."""

    refresh_s: float = 3600.0
    backoff_s: float = 0.1
    backoff_max_s: float = 10.0


class KeySet:
    """Keeps the keys of one listener's tokens up to date. `source` blocks; it raises OSError."""

    def __init__(
        self,
        listener: str,
        tokens: SignedTokens,
        source: Callable[[], bytes],
        offload: Offload,
        times: KeySetTimes = KeySetTimes(),
    ) -> None:
        self._listener = listener
        self._tokens = tokens
        self._source = source
        self._offload = offload
        self._times = times
        self._asked_for: dict[str, float] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        tokens.unknown_key = self.unknown_key

    async def start(self) -> None:
        """Raises KafkaError if there are no keys to be had."""
        try:
            self._tokens.keys = await self._fetched()
        except (OSError, ValueError) as error:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"listener {self._listener}: sasl.oauthbearer.jwks.endpoint.url: {error}",
            ) from None
        self._task = asyncio.get_running_loop().create_task(self._refresh())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def unknown_key(self, key_id: str) -> None:
        """A token named a key that is not here."""
        now = asyncio.get_running_loop().time()
        last = self._asked_for.pop(key_id, None)
        if last is not None and now - last < UNKNOWN_KEY_PAUSE_S:
            self._asked_for[key_id] = last
            return
        if len(self._asked_for) >= UNKNOWN_KEYS_MAX:
            del self._asked_for[next(iter(self._asked_for))]
        self._asked_for[key_id] = now
        self._wake.set()

    def _fetched(self) -> Awaitable[Mapping[str, PublicKey]]:
        return self._offload(lambda: parse_jwks(self._source()))

    async def _refresh(self) -> None:
        pause_s = self._times.refresh_s
        backoff_s = self._times.backoff_s
        while True:
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), pause_s)
            except TimeoutError:
                pass  # it is time
            try:
                self._tokens.keys = await self._fetched()
            except (OSError, ValueError) as error:
                logger.warning(
                    "listener %s keeps its token keys, fetching failed: %s", self._listener, error
                )
                pause_s, backoff_s = backoff_s, min(2 * backoff_s, self._times.backoff_max_s)
                continue
            pause_s, backoff_s = self._times.refresh_s, self._times.backoff_s
