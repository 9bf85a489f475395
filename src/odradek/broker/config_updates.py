"""Changing the settings of topics and brokers: check them, write them, notify every broker.

The store keeps them; a notification makes every broker, this one included, read them again
(docs/spec/interchange-with-apache-kafka.md section B.1).
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from odradek.broker.config import is_password, validate_dynamic, validate_topic
from odradek.store.configs import NoController
from odradek.store.paths import DEFAULT_ENTITY, ConfigKind
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.settings import TOPIC_SETTINGS, InvalidValue

if TYPE_CHECKING:
    from odradek.broker.server import Broker
    from odradek.security.password_encoder import PasswordEncoder

__all__ = [
    "BROKER",
    "TOPIC",
    "Change",
    "alter_each",
    "change",
    "check_keys",
    "decode_passwords",
    "resource_response",
    "write",
]

logger = logging.getLogger(__name__)

TOPIC = 2
BROKER = 4

# What becomes of the settings that there are.
Change = Callable[[Mapping[str, str]], Mapping[str, str]]


class Resource(Protocol):
    """The owner of settings, in whichever request."""

    resource_type: int
    resource_name: str


A = TypeVar("A", bound=Resource)
R = TypeVar("R")


async def alter_each(
    broker: "Broker",
    resources: Collection[A],
    change_of: Callable[[A], Change],
    answer: Callable[..., R],
    *,
    validate_only: bool,
) -> list[R]:
    """Applies `change_of(resource)` to each resource and returns one result per resource."""
    answers = []
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    for resource in resources:
        error = KafkaError(ErrorCode.NONE)
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
                )
            await _alter(broker, resource, change_of(resource), validate_only=validate_only)
        except KafkaError as failed:
            error = failed
        answers.append(resource_response(answer, resource, error))
    return answers


def check_keys(names: Collection[str], nulls: Collection[str]) -> None:
    """Refuses a resource that names a key twice, or wants one of them to have no value."""
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if nulls:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for: {', '.join(nulls)}"
        )


def resource_response(answer: Callable[..., R], resource: Resource, error: KafkaError) -> R:
    return answer(
        error_code=error.error,
        error_message=error.message or None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


async def _alter(
    broker: "Broker", resource: Resource, change: Change, *, validate_only: bool
) -> None:
    name = resource.resource_name
    kind, entity = _entity(broker, resource.resource_type, name)
    before: Mapping[str, str] = await broker.store.configs.get(kind, entity)
    if kind is ConfigKind.BROKERS:
        before = decode_passwords(broker.security.passwords, before)
    settings = change(before)
    # In a cluster with another kind of broker there may be settings that only that one knows, or
    # lets change. They are kept and do not get in the way: only setting one again is refused.
    asked = {key: text for key, text in settings.items() if before.get(key) != text}
    if kind is ConfigKind.TOPICS:
        known = {key: text for key, text in settings.items() if key in TOPIC_SETTINGS}
        _validate_topic(broker, name, known | asked)
    else:
        validate_dynamic(asked, per_broker=bool(name))
        settings = _encode_passwords(broker, settings)
    certificates = broker.security.certificates
    if kind is ConfigKind.BROKERS and name and certificates is not None:
        certificates.check(
            broker.config.with_own(decode_passwords(broker.security.passwords, settings))
        )
    if not validate_only:
        await write(broker, kind, entity, settings)
        if kind is ConfigKind.BROKERS and name and certificates is not None:
            certificates.reload()


async def write(
    broker: "Broker", kind: ConfigKind, entity: str, settings: Mapping[str, str]
) -> None:
    """Writes all settings of an entity and notifies every broker. Raises KafkaError."""
    try:
        await broker.store.configs.set(kind, entity, settings)
    except NoController as error:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, str(error)) from None
    await broker.store.configs.changes.notify(f"{kind}/{entity}")


async def change(
    broker: "Broker",
    kind: ConfigKind,
    entity: str,
    changed: Callable[[dict[str, str]], Mapping[str, str]],
) -> None:
    """Like `write`, but keeps what another writer changes meanwhile: a user's node has quotas and
    credentials in it, which come by different requests."""
    try:
        await broker.store.configs.change(kind, entity, changed)
    except NoController as error:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, str(error)) from None
    await broker.store.configs.changes.notify(f"{kind}/{entity}")


def decode_passwords(
    encoder: "PasswordEncoder | None", settings: Mapping[str, str]
) -> Mapping[str, str]:
    """A broker's settings with their passwords in clear; those that cannot be opened are left
    out."""
    clear = {}
    for name, text in settings.items():
        if is_password(name):
            try:
                if encoder is None:
                    raise ValueError("password.encoder.secret is not set")
                text = encoder.decode(text)
            except ValueError as error:
                logger.error("setting %s is ignored: %s", name, error)
                continue
        clear[name] = text
    return clear


def _encode_passwords(broker: "Broker", settings: Mapping[str, str]) -> Mapping[str, str]:
    """Raises KafkaError(INVALID_REQUEST) without a secret to encrypt them with."""
    encoder = broker.security.passwords
    encoded = {}
    for name, text in settings.items():
        if is_password(name):
            if encoder is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "Password encoder secret not configured: set password.encoder.secret to"
                    f" change {name} while the broker runs",
                )
            text = encoder.encode(text, broker.rng.randbytes)
        encoded[name] = text
    return encoded


def _validate_topic(broker: "Broker", topic: str, settings: Mapping[str, str]) -> None:
    try:
        validate_topic(broker.config, settings)
    except InvalidValue as error:
        resource = f"ConfigResource(type=TOPIC, name='{topic}')"
        raise KafkaError(
            error.error, f"Invalid config value for resource {resource}: {error.message}"
        ) from None


def _entity(broker: "Broker", resource_type: int, name: str) -> tuple[ConfigKind, str]:
    if resource_type == TOPIC:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        if not broker.cache.has_topic(name):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
        return ConfigKind.TOPICS, name
    if resource_type == BROKER:
        if not name:
            return ConfigKind.BROKERS, DEFAULT_ENTITY
        if not name.isdecimal():
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
            )
        if int(name) != broker.id:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {broker.id}, but received {name}",
            )
        return ConfigKind.BROKERS, str(broker.id)  # it may have been written 01
    raise KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"AlterConfigs is only supported for topics and brokers, not for type {resource_type}",
    )
