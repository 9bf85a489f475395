"""RenewDelegationToken (39), v0–v2. The owner or a renewer moves a token's expiry.

At most to the token's maximum. docs/spec/security.md, section 3.6.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.handlers.create_delegation_token import require_login, tokens_of
from odradek.wire.errors import KafkaError
from odradek.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


async def handle(
    broker: Broker, request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    try:
        require_login(broker, context)
        expires_ms = await tokens_of(broker).renew(
            bytes(request.hmac), context.may.principal, request.renew_period_ms
        )
    except KafkaError as error:
        return RenewDelegationTokenResponse(error_code=error.error, expiry_timestamp_ms=-1)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires_ms)
