"""Producing one record."""

import base64
import binascii
from typing import Any

from odradek.client.producer import Producer
from odradek.console.accounts import Account, Right
from odradek.console.console import Console
from odradek.console.link import Api
from odradek.console.plans import Basis, Change, Done, Draft, Kind, OutcomeRow
from odradek.console.web import Problem, int_of, objects_of, text_of

DELIVERY_TIMEOUT_S = 15.0
HEADERS_MAX = 100


def bytes_of(body: dict[str, Any], name: str, encoding: str) -> bytes | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise Problem(422, f"{name} is a text or null", field=name)
    if encoding == "base64":
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise Problem(422, f"{name} is not base64", field=name) from None
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise Problem(422, f"{name} has half a surrogate pair: send base64", field=name) from None


async def plan_produce(console: Console, body: dict[str, Any], account: Account) -> Draft:
    topic, encoding = text_of(body, "topic"), text_of(body, "encoding", "text")
    if encoding not in ("text", "base64"):
        raise Problem(422, "encoding is text or base64", field="encoding")
    key, value = bytes_of(body, "key", encoding), bytes_of(body, "value", encoding)
    headers = tuple(
        (text_of(each, "name"), bytes_of(each, "value", encoding))
        for each in objects_of(body, "headers")[:HEADERS_MAX]
    )
    partition = None if body.get("p") is None else int_of(body, "p")
    metadata = await console.link.client.require_topics([topic])
    count = len(metadata.topics[topic].partitions)
    if partition is not None and not 0 <= partition < count:
        raise Problem(422, f"{topic} has the partitions 0 to {count - 1}", field="p")

    async def read_basis() -> Basis:
        again = await console.link.client.require_topics([topic])
        return {topic: len(again.topics[topic].partitions)}

    async def start(api: Api) -> Done:
        async with Producer(api.client, delivery_timeout_s=DELIVERY_TIMEOUT_S) as producer:
            sent = await (
                await producer.send(topic, value, key=key, partition=partition, headers=headers)
            )
        where = {
            "p": sent.partition.partition,
            "offset": sent.offset,
            "timestamp_ms": sent.timestamp_ms,
        }
        return Done([OutcomeRow(topic)], where)

    shown = "a tombstone" if value is None else _counted(len(value), "byte")
    where = "" if partition is None else f" in partition {partition}"
    warnings = []
    if value is None and key is None:
        warnings.append("a tombstone without a key deletes nothing")
    return Draft(
        f"Produce to {topic}",
        # Contents are data, and not for the audit.
        [Change(topic, "", f"{shown}{where}, {_counted(len(headers), 'header')}")],
        start,
        read_basis,
        {topic: count},
        warnings=warnings,
    )


KINDS = {"produce": Kind(Right.OPERATE, plan_produce)}


def _counted(count: int, one: str) -> str:
    return f"{count} {one}" if count == 1 else f"{count} {one}s"
