"""A cluster with security: its certificates and users, and a client of its brokers for the cluster.

Everything a client needs is in a directory of the cluster's data, made on first use and kept: a
cluster that is started again on the same data has the same users.
"""

import asyncio
import os
import secrets
import shutil
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from odradek.broker.first_users import write_users
from odradek.client.client import Client
from odradek.client.security import connection_security
from odradek.client.users import Users
from odradek.security.development import ADMIN, DevelopmentSecurity
from odradek.wire.connection import Connection
from odradek.wire.errors import KafkaError
from odradek.wire.schema import Message, Request

__all__ = ["LOCAL_HOSTS", "SecureAccess", "prepare_security", "security_of"]

DIRECTORY = "security"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")

R = TypeVar("R", bound=Message)
T = TypeVar("T")


def security_of(data_dir: Path) -> DevelopmentSecurity:
    """Where the certificates and settings of the cluster with this directory are."""
    return DevelopmentSecurity(data_dir.absolute() / DIRECTORY)


async def prepare_security(
    made: DevelopmentSecurity, store: str, hosts: tuple[str, ...] = LOCAL_HOSTS
) -> None:
    """The certificates, settings and first users of a cluster, made unless they are there.

    The directory gets its name last: after a crash everything is made again, with new passwords.
    """
    if made.exists:
        return
    unfinished = made.directory.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    passwords = made.create_in(unfinished, hosts)
    await write_users(store, passwords, secrets.token_bytes)
    os.rename(unfinished, made.directory)


class SecureAccess:
    """What the cluster itself asks its brokers, as the administrator.

    A thread of its own, with a loop: callers may be in a loop themselves.
    """

    def __init__(self, data_dir: Path, store: str) -> None:
        self._thread = ThreadPoolExecutor(1, "odradek-cluster")
        self._runner: asyncio.Runner | None = None
        self.files = security_of(data_dir)
        self._run(prepare_security(self.files, store))
        self._administrator = self.files.administrator()
        self._security = connection_security(self._administrator)
        self._passwords = {ADMIN: self._administrator["sasl.password"]}

    def client_config(self, user: str | None) -> dict[str, str]:
        """librdkafka's settings for a user. Raises KeyError for one that was not added here."""
        name = ADMIN if user is None else user
        return self.files.librdkafka(name, self._passwords[name])

    def add_user(self, bootstrap: str, name: str, password: str) -> None:
        async def add() -> None:
            async with Client(bootstrap, security=self._administrator) as client:
                await Users(client).add(name, password)

        self._run(add())
        self._passwords[name] = password

    def can_log_in(self, user: str, host: str, port: int, timeout_s: float) -> bool:
        """Whether this broker knows the user and its newest password."""
        security = connection_security(self.client_config(user))

        async def log_in() -> None:
            connection = await Connection.open(host, port, timeout=timeout_s, security=security)
            connection.close()

        try:
            self._run(log_in())
        except (KafkaError, OSError):
            return False
        return True

    def ask(self, host: str, port: int, request: Request[R], version: int, timeout_s: float) -> R:
        """One request on a connection of its own. Raises OSError."""

        async def exchange() -> R:
            connection = await Connection.open(
                host, port, timeout=timeout_s, security=self._security
            )
            try:
                return await connection.request(request, version)
            finally:
                connection.close()

        try:
            return self._run(exchange())
        except KafkaError as error:  # a broker that starts does not know its users yet
            raise ConnectionError(str(error)) from None

    def close(self) -> None:
        if self._runner is not None:
            self._thread.submit(self._runner.close).result()
        self._thread.shutdown()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._thread.submit(self._on_thread, call).result()

    def _on_thread(self, call: Coroutine[Any, Any, T]) -> T:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(call)
