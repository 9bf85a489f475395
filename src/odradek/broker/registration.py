"""This broker's registration in the store: its id, its address, its epoch.

An address or an id that another live broker holds is an error that an operator must resolve. The
node that a crash of this broker left goes with its session, which is waited for.
"""

from collections.abc import Collection, Iterable

from odradek.broker.config import BrokerConfig
from odradek.broker.unclean_start import ALL_PARTITIONS, leave_isrs_after_data_loss
from odradek.log.checkpoints import MetaProperties
from odradek.store.api import NodeExists
from odradek.store.cluster import ClusterStore
from odradek.store.payloads import BrokerRegistration
from odradek.wire.topics import TopicPartition

__all__ = ["StartFailed", "find_id", "register"]


class StartFailed(Exception):
    """The broker cannot start, and an operator must do something about it."""


async def find_id(
    config: BrokerConfig, on_disk: Iterable[MetaProperties], store: ClusterStore
) -> int:
    """The configured id, or the one on disk, or a generated one."""
    configured = config.integer("broker.id")
    if configured >= 0:
        return configured
    for found in on_disk:
        if found.broker_id is not None:
            return found.broker_id
    if not config.flag("broker.id.generation.enable"):
        raise StartFailed("broker.id is not set, and broker.id.generation.enable is false")
    return await store.next_broker_id(config.integer("reserved.broker.max.id"))


async def register(
    broker: BrokerRegistration,
    store: ClusterStore,
    *,
    wait_ms: int,
    leaving: Collection[TopicPartition] | None = (),
) -> tuple[int, set[TopicPartition]]:
    """Register, and leave the ISRs of the given partitions in the same transaction. Returns the
    broker epoch, and the partitions of these that this broker is the last in-sync replica of.
    Raises StartFailed."""
    await _check_addresses(broker, store)
    try:
        if leaving is ALL_PARTITIONS or leaving:
            return await leave_isrs_after_data_loss(store, broker, leaving, wait_ms=wait_ms)
        return await store.register_broker(broker, wait_ms=wait_ms), set()
    except NodeExists as error:
        raise StartFailed(str(error)) from None


async def _check_addresses(broker: BrokerRegistration, store: ClusterStore) -> None:
    ours = {(each.host, each.port) for each in broker.endpoints}
    for other in (await store.brokers()).values():
        taken = {(each.host, each.port) for each in other.endpoints}
        if other.id != broker.id and taken & ours:
            raise StartFailed(f"broker {other.id} is registered at the same address")
