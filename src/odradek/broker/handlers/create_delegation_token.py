"""CreateDelegationToken (38), v0–v3. For oneself, or from v3 for another user.

Asked of a client that has logged in, and not by a token. docs/spec/security.md, section 3.6.
"""

from odradek.broker.delegation_tokens import TokenFollower
from odradek.broker.handler import Broker, RequestContext
from odradek.broker.listeners import SecurityProtocol
from odradek.security.acls import AclOperation, ResourceType
from odradek.security.principal import ANONYMOUS, USER, Principal
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)


async def handle(
    broker: Broker, request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    requester = context.may.principal
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_name, request.owner_principal_type or USER)
    try:
        require_login(broker, context)
        if owner != requester and not context.may.allows(
            AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)
        ):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        renewers = tuple(
            Principal(each.principal_name, each.principal_type) for each in request.renewers
        )
        if any(each.type != USER for each in (owner, *renewers)):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        token = await tokens_of(broker).create(owner, requester, renewers, request.max_lifetime_ms)
    except KafkaError as error:
        return _answer(
            owner,
            requester,
            CreateDelegationTokenResponse(
                error_code=error.error,
                issue_timestamp_ms=-1,
                expiry_timestamp_ms=-1,
                max_timestamp_ms=-1,
            ),
        )
    return _answer(
        owner,
        requester,
        CreateDelegationTokenResponse(
            issue_timestamp_ms=token.issued_ms,
            expiry_timestamp_ms=token.expires_ms,
            max_timestamp_ms=token.max_ms,
            token_id=token.id,
            hmac=tokens_of(broker).tokens.hmac_of(token.id),
        ),
    )


def _answer(
    owner: Principal, requester: Principal, response: CreateDelegationTokenResponse
) -> CreateDelegationTokenResponse:
    response.principal_type, response.principal_name = owner.type, owner.name
    response.token_requester_principal_type = requester.type
    response.token_requester_principal_name = requester.name
    return response


def require_login(broker: Broker, context: RequestContext) -> None:
    """Raises KafkaError unless the client has proved who it is, and not by a token."""
    listener = broker.security.of(context.connection.listener).listener
    principal = context.may.principal
    if (
        listener.protocol is SecurityProtocol.PLAINTEXT
        or principal.token_authenticated
        or (listener.protocol is SecurityProtocol.SSL and principal == ANONYMOUS)
    ):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def tokens_of(broker: Broker) -> TokenFollower:
    """Raises KafkaError where no secret is configured."""
    if broker.followers.tokens is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return broker.followers.tokens
