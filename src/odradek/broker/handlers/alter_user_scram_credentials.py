"""AlterUserScramCredentials (51), v0. Only the controller; others answer NOT_CONTROLLER.

The request carries salted passwords, never passwords. An error of one change takes all changes of
that user with it; users without an error are written one by one, each keeping its other settings.
docs/spec/security.md, section 3.4.
"""

from collections import Counter
from functools import partial

from odradek.broker.config_updates import change as change_settings
from odradek.broker.handler import Broker, RequestContext
from odradek.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISMS,
    ScramCredential,
    ScramMechanism,
)
from odradek.store.paths import ConfigKind, sanitize
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

CONTROLLER_ONLY = True
BY_CODE = {mechanism.code: mechanism for mechanism in MECHANISMS.values()}
Change = ScramCredentialDeletion | ScramCredentialUpsertion


async def handle(
    broker: Broker, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    by_user: dict[str, list[Change]] = {}
    for change in _changes(request):
        by_user.setdefault(change.name, []).append(change)
    results = []
    for user, changes in by_user.items():
        error = KafkaError(ErrorCode.NONE)
        try:
            await _alter(broker, user, changes)
        except KafkaError as failed:
            error = failed
        results.append(_result(user, error))
    return AlterUserScramCredentialsResponse(results=results)


def refuse(
    request: AlterUserScramCredentialsRequest, error: KafkaError, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys(each.name for each in _changes(request))
    return AlterUserScramCredentialsResponse(results=[_result(user, error) for user in users])


def _changes(request: AlterUserScramCredentialsRequest) -> list[Change]:
    return [*request.deletions, *request.upsertions]


async def _alter(broker: Broker, user: str, changes: list[Change]) -> None:
    if not user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if max(Counter(change.mechanism for change in changes).values()) > 1:
        raise KafkaError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )
    await change_settings(broker, ConfigKind.USERS, sanitize(user), partial(_changed, changes))


def _changed(changes: list[Change], settings: dict[str, str]) -> dict[str, str]:
    for change in changes:
        mechanism = BY_CODE.get(change.mechanism)
        if mechanism is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if isinstance(change, ScramCredentialUpsertion):
            settings[mechanism.name] = _credential(mechanism, change).encode()
        elif settings.pop(mechanism.name, None) is None:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
    return settings


def _credential(mechanism: ScramMechanism, change: ScramCredentialUpsertion) -> ScramCredential:
    if change.iterations < ITERATIONS_MIN:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return ScramCredential.from_salted(
        mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations
    )


def _result(user: str, error: KafkaError) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(
        user=user, error_code=error.error, error_message=error.message or None
    )
