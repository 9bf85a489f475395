"""ExpireDelegationToken (40), v0–v2. The owner or a renewer sets a token's expiry.

A negative period deletes it. docs/spec/security.md, section 3.6.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.handlers.create_delegation_token import require_login, tokens_of
from odradek.wire.errors import KafkaError
from odradek.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


async def handle(
    broker: Broker, request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    try:
        require_login(broker, context)
        expires_ms = await tokens_of(broker).expire(
            bytes(request.hmac), context.may.principal, request.expiry_time_period_ms
        )
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error_code=error.error, expiry_timestamp_ms=-1)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_ms)
