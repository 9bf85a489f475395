"""Cluster metadata: a tree of versioned nodes with watches, ephemerals and atomic multi-ops.

``open_store`` takes the address of a store: ``sqlite:///var/lib/odradek/metadata.db`` or
``zookeeper://host1:2181,host2:2181/chroot``. What a store does is in ``api``; what the cluster
keeps in it, typed, is in ``cluster``.
"""

import ssl
from collections.abc import Callable, Sequence

from odradek.store.api import (
    DEFAULT_SESSION_TIMEOUT_MS,
    Store,
    StoreLogin,
    wall_clock_ms,
)


def open_store(
    url: str,
    *,
    session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
    clock: Callable[[], int] = wall_clock_ms,
    authentication: Sequence[StoreLogin] = (),
    tls: ssl.SSLContext | None = None,
    set_acl: bool = False,
) -> Store:
    """The store at this address, not yet started.

    The clock stamps nodes in SQLite; the last three settings are for ZooKeeper alone.
    """
    kind, _, place = url.partition(":")
    place = place.removeprefix("//")
    if kind == "sqlite" and place:
        from odradek.store.sqlite import SqliteStore

        return SqliteStore(place, session_timeout_ms=session_timeout_ms, clock=clock)
    if kind == "zookeeper" and place:
        from odradek.store.zookeeper import ZooKeeperStore

        hosts, _, chroot = place.partition("/")
        return ZooKeeperStore(
            hosts,
            f"/{chroot}",
            session_timeout_ms=session_timeout_ms,
            authentication=authentication,
            tls=tls,
            set_acl=set_acl,
        )
    raise ValueError(f"not the address of a store: {url!r} (sqlite:FILE or zookeeper://HOST:PORT)")
