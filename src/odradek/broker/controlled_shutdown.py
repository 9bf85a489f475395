"""Controlled shutdown, the broker's side: ask the controller to take our leaderships away first.

Asked over the wire, of the active controller, which may be this broker; again after a pause if
something went wrong or partitions are left, and after the last attempt the broker stops anyway. The
pause ends as soon as another broker is controller: a cluster that is stopped broker by broker loses
its controller on the way. docs/spec/controller-and-replication.md section 4.4,
docs/spec/interchange-with-apache-kafka.md section A.4.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from odradek.store.api import StoreError
from odradek.wire.connection import Connection
from odradek.wire.errors import DecodeError, ErrorCode, KafkaError
from odradek.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

if TYPE_CHECKING:
    from odradek.broker.server import Broker

__all__ = ["hand_over_leaderships"]

VERSION = 3
# A store that is silent for this long is unreachable: no leader can be elected then.
STORE_TIMEOUT_S = 3.0
# How often to look for another controller.
LOOK_S = 0.1

logger = logging.getLogger(__name__)


async def hand_over_leaderships(broker: "Broker") -> bool:
    """True if the controller has moved every leadership."""
    try:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            await broker.store.controller.id()
    except TimeoutError:
        logger.warning("controlled shutdown skipped: the metadata store is unreachable")
        return False
    except StoreError as error:
        logger.warning("controlled shutdown skipped: %s", error)
        return False
    attempts = broker.config.integer("controlled.shutdown.max.retries")
    pause_s = broker.config.integer("controlled.shutdown.retry.backoff.ms") / 1000
    for attempt in range(attempts):
        controller_id, problem = await _ask(broker)
        if problem is None:
            return True
        if await _is_alone(broker):
            logger.info("controlled shutdown: no other broker is left to hand leaderships to")
            return False
        logger.warning("controlled shutdown, attempt %d of %d: %s", attempt + 1, attempts, problem)
        if attempt + 1 < attempts:
            await _pause(broker, pause_s, controller_id)
    return False


async def _pause(broker: "Broker", pause_s: float, asked: int | None) -> None:
    """Until the next attempt; less if there is another controller to ask."""
    try:
        async with asyncio.timeout(pause_s):
            while await broker.store.controller.id() in (None, asked):  # noqa: ASYNC110  # looks
                await asyncio.sleep(LOOK_S)
    except (StoreError, TimeoutError):
        pass  # the next attempt finds out


async def _is_alone(broker: "Broker") -> bool:
    try:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            return not set(await broker.store.broker_ids()) - {broker.id}
    except (StoreError, TimeoutError):
        return False


async def _ask(broker: "Broker") -> tuple[int | None, str | None]:
    """The controller that was asked, and what kept it from moving every leadership, if anything."""
    timeout_s = broker.config.integer("controller.socket.timeout.ms") / 1000
    controller_id = None
    try:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            controller_id = await broker.store.controller.id()
            known = None if controller_id is None else await broker.store.broker(controller_id)
        endpoint = None if known is None else known.endpoint(broker.config.inter_broker_listener())
        if endpoint is None:
            return controller_id, "there is no controller"
        connection = await Connection.open(
            endpoint.host,
            endpoint.port,
            client_id=str(broker.id),
            timeout=timeout_s,
            security=broker.security.inter_broker,
        )
        try:
            response = await connection.request(
                ControlledShutdownRequest(broker_id=broker.id, broker_epoch=broker.epoch), VERSION
            )
        finally:
            connection.close()
    except (ConnectionError, TimeoutError, StoreError, DecodeError, KafkaError) as error:
        return controller_id, str(error) or type(error).__name__
    return controller_id, _problem(response)


def _problem(response: ControlledShutdownResponse) -> str | None:
    if response.error_code != ErrorCode.NONE:
        return ErrorCode(response.error_code).name
    if response.remaining_partitions:
        return f"{len(response.remaining_partitions)} partitions are still led here"
    return None
