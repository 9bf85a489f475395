"""DescribeUserScramCredentials (50), v0. Mechanisms and iterations of users, never the keys."""

from collections import Counter

from odradek.broker.handler import Broker, RequestContext
from odradek.security.scram import MECHANISMS
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(
    broker: Broker, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    names = [each.name for each in request.users or ()] or broker.security.credentials.users
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[_result(broker, name, times) for name, times in sorted(Counter(names).items())],
    )


def _result(broker: Broker, user: str, times: int) -> DescribeUserScramCredentialsResult:
    credentials = broker.security.credentials.of(user)
    if times > 1:
        return _error(user, ErrorCode.DUPLICATE_RESOURCE, "the user is named more than once")
    if not user or not credentials:
        return _error(
            user,
            ErrorCode.RESOURCE_NOT_FOUND,
            f"Attempt to describe a user credential that does not exist: {user}",
        )
    return DescribeUserScramCredentialsResult(
        user=user,
        error_message=None,
        credential_infos=[
            CredentialInfo(mechanism=MECHANISMS[name].code, iterations=credential.iterations)
            for name, credential in credentials.items()
        ],
    )


def _error(user: str, error: ErrorCode, message: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=user, error_code=error, error_message=message)
