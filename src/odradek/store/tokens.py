"""Delegation tokens, as Kafka keeps them.

docs/spec/security.md, section 3.6. A token has one node; a change of it leaves a notification that
every broker replays. The secret part of a token is in no node: it is derived from its id.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.store import payloads
from odradek.store.api import NodeExists, NoNode
from odradek.store.change_nodes import ChangeNodes
from odradek.store.nodes import Nodes
from odradek.store.paths import desanitize, sanitize

TOKENS = "/delegation_token/tokens"
CHANGES = "/delegation_token/token_changes"
CHANGE_PREFIX = "token_change_"
# Versions 1 and 2 do not say who asked for a token: its owner did.
REQUESTER_SINCE = 3


class StoredToken(NamedTuple):
    """Principals have the form User:name."""

    id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int


class TokenNodes:
    """Tokens by id."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.changes = ChangeNodes(
            nodes,
            CHANGES,
            CHANGE_PREFIX,
            str.encode,
            lambda data, _: (data or b"").decode(errors="replace"),
        )

    async def prepare(self) -> None:
        """Create the nodes that brokers with a secret create at start."""
        await self._nodes.ensure(TOKENS)
        await self.changes.prepare()

    async def ids(self) -> list[str]:
        return await self._nodes.names(TOKENS)

    async def get(self, token_id: str) -> StoredToken | None:
        path = f"{TOKENS}/{token_id}"
        node = await self._nodes.read(path)
        return None if node is None else decode_token(node[0], path)

    async def set(self, token: StoredToken) -> None:
        path, data = f"{TOKENS}/{token.id}", encode_token(token)
        try:
            await self._nodes.session.create(path, data)
        except NodeExists:
            await self._nodes.session.set(path, data)

    async def replace(self, token: StoredToken) -> bool:
        """Write a token that exists; False if it has been deleted."""
        try:
            await self._nodes.session.set(f"{TOKENS}/{token.id}", encode_token(token))
        except NoNode:
            return False
        return True

    async def delete(self, token_id: str) -> None:
        await self._nodes.delete_if_there(f"{TOKENS}/{token_id}")


def encode_token(token: StoredToken) -> bytes:
    return payloads.dump(
        {
            "version": REQUESTER_SINCE,
            "owner": sanitize(token.owner),
            "tokenRequester": sanitize(token.requester),
            "renewers": [sanitize(each) for each in token.renewers],
            "issueTimestamp": token.issued_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expires_ms,
            "tokenId": token.id,
        }
    )


def decode_token(data: bytes | None, path: str) -> StoredToken:
    of = payloads.parse(data, path)
    version = payloads.integer(of, "version", path)
    owner = desanitize(payloads.typed(of, "owner", str, path))
    requester = owner
    if version >= REQUESTER_SINCE:
        requester = desanitize(payloads.typed(of, "tokenRequester", str, path))
    renewers = payloads.typed(of, "renewers", list, path)
    return StoredToken(
        payloads.typed(of, "tokenId", str, path),
        owner,
        requester,
        tuple(desanitize(str(each)) for each in renewers),
        payloads.typed(of, "issueTimestamp", int, path),
        payloads.typed(of, "maxTimestamp", int, path),
        payloads.typed(of, "expiryTimestamp", int, path),
    )
