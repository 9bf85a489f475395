"""Topic ids: given to topics that have none, and written back where one was lost.

From inter-broker protocol 2.8 on every topic has an id, in its node. Topics of an older cluster get
theirs from the first controller that speaks 2.8 or later, before it loads their assignments. A tool
that rewrites a topic's node without the id would make the next controller give the topic another,
and every replica would refuse it: so the id that we know is written back.
docs/spec/protocol-ladder.md section 2.1.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from odradek.controller.term import Term
from odradek.store.nodes import NO_NODE, Refused
from odradek.store.payloads import TopicNode
from odradek.wire.topic_ids import format_topic_id, new_topic_id

__all__ = ["give_ids", "restore_id"]

logger = logging.getLogger(__name__)


async def give_ids(term: Term, nodes: Mapping[str, TopicNode]) -> dict[str, TopicNode]:
    """These topics as they now stand, each with an id if this protocol has ids. A topic that went
    meanwhile is left out."""
    found = dict(nodes)
    if not term.config.protocol.uses_topic_ids:
        return found
    given = {name: new_topic_id(term.rng) for name, node in nodes.items() if node.topic_id is None}
    if given:
        term.note(f"topic ids given to {len(given)} topics")
        for name in given:
            del found[name]
        found.update(await _write_ids(term, given))
    return found


async def restore_id(term: Term, topic: str) -> None:
    """Write back the id of a topic whose node has none any more."""
    topic_id = term.context.topic_ids.ids[topic]
    logger.warning(
        "topic %s: its node was rewritten without its id, %s is written back; do not use the tool"
        " that did this on a cluster with topic ids",
        topic,
        format_topic_id(topic_id),
    )
    term.note(f"topic {topic}: lost topic id {format_topic_id(topic_id)} written back")
    await _write_ids(term, {topic: topic_id})


async def _write_ids(term: Term, ids: Mapping[str, UUID]) -> dict[str, TopicNode]:
    """The nodes as they were written: with these ids, unless one had appeared meanwhile. One that
    is damaged reads as if it had no partitions, and must not become what it reads as."""
    written: dict[str, TopicNode] = {}

    def add_id(topic: str, node: TopicNode) -> TopicNode | Refused:
        if not node.partitions:
            return Refused("its node has no partitions; it may be damaged")
        written[topic] = replace(node, topic_id=node.topic_id or ids[topic])
        return written[topic]

    refused = await term.store.update_topics(ids, add_id, term.fence)
    for topic, refusal in refused.items():
        written.pop(topic, None)
        if refusal is not NO_NODE:
            logger.error("topic %s: its id was not written: %s", topic, refusal.reason)
    return written
