"""SaslAuthenticate (36), v0–v2. Refused outside a login, as in `sasl_handshake`."""

from odradek.broker.handler import Broker, RequestContext
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


def handle(
    broker: Broker, request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="This listener is without SASL."
    )
