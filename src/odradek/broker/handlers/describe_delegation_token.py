"""DescribeDelegationToken (41), v0–v3. Of the owners asked for, those the client may see.

docs/spec/security.md, section 3.6. The answer holds the tokens' secrets.
"""

from odradek.broker.delegation_tokens import DelegationToken
from odradek.broker.handler import Broker, RequestContext
from odradek.broker.handlers.create_delegation_token import require_login, tokens_of
from odradek.security.acls import AclOperation, ResourceType
from odradek.security.principal import Principal
from odradek.wire.errors import KafkaError
from odradek.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


def handle(
    broker: Broker, request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    try:
        require_login(broker, context)
        tokens = tokens_of(broker).tokens
    except KafkaError as error:
        return DescribeDelegationTokenResponse(error_code=error.error)
    owners = request.owners
    asked = (
        None
        if owners is None
        else [Principal(each.principal_name, each.principal_type) for each in owners]
    )
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(token, tokens.hmac_of(token.id))
            for token in tokens.all
            if (asked is None or any(map(token.concerns, asked))) and _may_see(token, context)
        ]
    )


def _may_see(token: DelegationToken, context: RequestContext) -> bool:
    may = context.may
    return (
        token.concerns(may.principal)
        or may.allows(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id)
        or may.allows(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner))
    )


def _described(token: DelegationToken, hmac: bytes) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name)
            for each in token.renewers
        ],
    )
