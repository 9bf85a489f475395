"""The metadata store while no broker runs: for settings that brokers need before they can start.

Brokers that log in to each other with SCRAM are such a case: none of them can create the user they
log in as. docs/spec/security.md, section 10, trap 7.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from odradek.broker.store_security import NO_STORE_SECURITY, StoreSecurity
from odradek.security.scram import ITERATIONS_MIN, MECHANISMS, ScramCredential
from odradek.store import open_store
from odradek.store.api import wall_clock_ms
from odradek.store.cluster import ClusterStore
from odradek.store.paths import ConfigKind, sanitize

__all__ = ["BrokersRunning", "offline_store", "write_users"]

SALT_BYTES = 24


class BrokersRunning(Exception):
    """The store is in use: brokers would not notice what is written behind their backs."""


@asynccontextmanager
async def offline_store(
    address: str, security: StoreSecurity = NO_STORE_SECURITY
) -> AsyncIterator[ClusterStore]:
    """The store at this address. Raises BrokersRunning, or ValueError for a wrong address."""
    store = ClusterStore(open_store(address, **security._asdict()), wall_clock_ms)
    await store.session.start()
    try:
        running = await store.broker_ids()
        if running:
            raise BrokersRunning(f"brokers {', '.join(map(str, sorted(running)))} are running")
        yield store
    finally:
        await store.session.close()


async def write_users(
    address: str,
    passwords: Mapping[str, str],
    randbytes: Callable[[int], bytes],
    mechanisms: Sequence[str] = tuple(MECHANISMS),
    iterations: int = ITERATIONS_MIN,
    security: StoreSecurity = NO_STORE_SECURITY,
) -> None:
    """Users with these passwords; what else is set for them stays. Writing twice is harmless."""
    async with offline_store(address, security) as store:
        for name, password in passwords.items():
            entity = sanitize(name)
            settings = dict(await store.configs.get(ConfigKind.USERS, entity))
            for each in mechanisms:
                settings[each] = ScramCredential.from_password(
                    MECHANISMS[each], password, randbytes(SALT_BYTES), iterations
                ).encode()
            await store.configs.set_offline(ConfigKind.USERS, entity, settings)
