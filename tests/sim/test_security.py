"""Worlds with users, ACLs and tokens that change; and the mistakes that such a world must find."""

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from odradek.broker.authentication import Authentication
from odradek.broker.change_follower import ChangeFollower
from odradek.broker.credentials import Credentials
from odradek.security.acls import Authorizer
from odradek.sim.security import SecurityReport, run_security

SEEDS = (1, 2, 3)


def plain_run(seed: int) -> SecurityReport:
    logging.disable(logging.CRITICAL)
    return run_security(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_revoked_is_refused(seed: int, repeatable: Executor) -> None:
    report = repeatable.submit(plain_run, seed).result()
    assert report.passed, [*map(str, report.violations), *report.findings]
    for what in ("allowed", "refused", "logins", "refused logins", "asked with a token", "changes"):
        assert report.counts[what] > 0, what


def keeps_decisions() -> Any:
    original = Authorizer.update

    def update(self: Authorizer, *arguments: Any) -> None:
        before = dict(self._decisions)
        original(self, *arguments)
        self._decisions.update(before)

    return mock.patch.object(Authorizer, "update", update)


def ignores_removals() -> Any:
    original = Authorizer.update

    def update(self: Authorizer, pattern: Any, entries: Any) -> None:
        original(self, pattern, {*self.entries.get(pattern, ()), *entries})

    return mock.patch.object(Authorizer, "update", update)


def never_hears() -> Any:
    return mock.patch.object(ChangeFollower, "watched")


def sessions_last() -> Any:
    return mock.patch.object(Authentication, "is_expired", property(lambda self: False))


def keeps_credentials() -> Any:
    original = Credentials.update

    def update(self: Credentials, user: str, settings: Mapping[str, str]) -> None:
        if any(name.startswith("SCRAM") for name in settings):
            original(self, user, settings)

    return mock.patch.object(Credentials, "update", update)


# A mistake, what notices it, and a seed that is known to.
BUGS = {
    "decisions outlive the ACLs": (keeps_decisions, "RevokedIsRefused", 1),
    "removed ACLs are not followed": (ignores_removals, "RevokedIsRefused", 1),
    "notifications are not heard": (never_hears, "OldPasswordsAreRefused", 1),
    "sessions do not end": (sessions_last, "ExpiredTokensAreRefused", 1),
    "deleted users can log in": (keeps_credentials, "OldPasswordsAreRefused", 1),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    with BUGS[name][0]():
        yield


def hunt(name: str, seed: int) -> set[str]:
    logging.disable(logging.CRITICAL)
    with planted(name):
        return {violation.invariant for violation in run_security(seed).violations}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, repeatable: Executor) -> None:
    _, invariant, seed = BUGS[name]
    assert invariant in repeatable.submit(hunt, name, seed).result()
