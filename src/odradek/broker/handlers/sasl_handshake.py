"""SaslHandshake (17), v0–v1. Refused outside a login, in the words of Apache Kafka on a
listener without SASL.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(
    broker: Broker, request: SaslHandshakeRequest, context: RequestContext
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
