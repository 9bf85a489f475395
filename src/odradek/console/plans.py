"""Every change is a plan first and an act second.

docs/spec/console-api.md section 7. A plan is made from what the cluster says, and remembers it: its
basis, by subject. When it is started, the basis is read again; what has changed since is named and
nothing is done. A plan starts once, for the user that made it, and is forgotten after a while or
when the console ends: then nothing has happened.
"""

import asyncio
import hashlib
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.console.accounts import Account, Right
from odradek.console.link import FAILURES, Api
from odradek.console.web import Problem, problem_of
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.console.console import Console

LIFETIME_MS = 15 * 60_000
PLANS_MAX = 200
CHANGES_SHOWN = 1_000
AUDITED_MAX = 100


class Change(NamedTuple):
    """One thing that will be different."""

    subject: str
    before: str = ""
    after: str = ""
    note: str = ""


class OutcomeRow(NamedTuple):
    """How it went with one subject."""

    subject: str
    error: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """What carrying out a plan brought."""

    outcomes: list[OutcomeRow]
    details: dict[str, Any] = field(default_factory=dict)


Basis = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Draft:
    """What the planner of a kind makes of a request."""

    title: str
    changes: list[Change]
    start: Callable[[Api], Awaitable[Done]]
    # Reads again what the plan rests on, by subject.
    read_basis: Callable[[], Awaitable[Basis]]
    basis: Basis
    warnings: list[str] = field(default_factory=list)
    blockers: list[str] = field(default_factory=list)
    confirm: str | None = None
    details: dict[str, Any] = field(default_factory=dict)
    # What the audit names, if not the subjects of the changes.
    audited: list[Change] | None = None


Planner = Callable[["Console", dict[str, Any], Account], Awaitable[Draft]]


class Kind(NamedTuple):
    """A kind of change: who may make it, and how it is planned."""

    right: Right
    plan: Planner


@dataclass(slots=True)
class Plan:
    id: str
    kind: str
    user: str
    draft: Draft
    made_ms: int
    state: str
    outcomes: list[OutcomeRow] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.draft.basis)

    def answer(self) -> dict[str, Any]:
        draft = self.draft
        return {
            "id": self.id,
            "kind": self.kind,
            "title": draft.title,
            "fingerprint": self.fingerprint,
            "made_ms": self.made_ms,
            "expires_ms": self.made_ms + LIFETIME_MS,
            "state": self.state,
            "changes": [each._asdict() for each in draft.changes[:CHANGES_SHOWN]],
            "changes_total": len(draft.changes),
            "warnings": draft.warnings,
            "blockers": draft.blockers,
            "confirm": draft.confirm,
            "details": {**draft.details, **self.details},
            "outcomes": [each._asdict() for each in self.outcomes[:CHANGES_SHOWN]],
        }


def fingerprint(basis: Basis) -> str:
    text = json.dumps(basis, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def changed_subjects(before: Basis, now: Basis) -> list[str]:
    """What is not as it was, by name."""
    return sorted(
        str(subject)
        for subject in before.keys() | now.keys()
        if fingerprint({"": before.get(subject)}) != fingerprint({"": now.get(subject)})
    )


class Plans:
    """The plans of all users."""

    def __init__(self, console: "Console", kinds: Mapping[str, Kind]) -> None:
        self._console = console
        self._kinds = kinds
        self._plans: dict[str, Plan] = {}
        self._ids = itertools.count(1)

    async def make(self, body: dict[str, Any], account: Account) -> Plan:
        name = body.get("kind")
        kind = self._kinds.get(name) if isinstance(name, str) else None
        if kind is None or not isinstance(name, str):
            raise Problem(
                422, f"there is no kind {name!r}; there are {', '.join(self._kinds)}", field="kind"
            )
        if not account.may(kind.right):
            raise Problem(
                403, f"this needs the right to {kind.right.value}", right=kind.right.value
            )
        draft = await kind.plan(self._console, body, account)
        plan = Plan(
            f"p{next(self._ids)}",
            name,
            account.name,
            draft,
            self._console.now_ms(),
            "blocked" if draft.blockers else "ready",
        )
        self._plans[plan.id] = plan
        while len(self._plans) > PLANS_MAX:
            del self._plans[next(iter(self._plans))]
        return plan

    def get(self, id: str, account: Account) -> Plan:
        plan = self._plans.get(id)
        if plan is None or plan.user != account.name:
            raise Problem(404, f"there is no plan {id!r}")
        return plan

    async def start(self, plan: Plan, body: dict[str, Any], account: Account, address: str) -> None:
        """Carry it out, or raise Problem and do nothing."""
        draft = plan.draft
        if not account.may(self._kinds[plan.kind].right):
            raise Problem(403, "this is not allowed")
        if self._console.now_ms() > plan.made_ms + LIFETIME_MS:
            raise Problem(409, "the plan has expired; make it again")
        if plan.state == "blocked":
            raise Problem(409, draft.blockers[0], blockers=draft.blockers)
        if plan.state != "ready":
            raise Problem(409, f"the plan is {plan.state} already")
        if draft.confirm is not None and body.get("confirm") != draft.confirm:
            raise Problem(422, f"type {draft.confirm} to confirm", field="confirm")
        plan.state = "started"
        try:
            changed = changed_subjects(draft.basis, await draft.read_basis())
            if changed:
                raise Problem(
                    409,
                    f"{', '.join(changed[:5])} changed since the plan was made",
                    changed=changed[:CHANGES_SHOWN],
                )
        except (Problem, *FAILURES):
            plan.state = "failed"
            raise
        await self._carry_out(plan, account, address)

    async def _carry_out(self, plan: Plan, account: Account, address: str) -> None:
        api = await self._console.link.for_user(account.name)
        try:
            done = await plan.draft.start(api)
        except (Problem, *FAILURES) as error:
            plan.state = "failed"
            problem = problem_of(error)
            self._audit(plan, account, address, {}, problem.detail)
            raise problem from None
        except asyncio.CancelledError:
            self._audit(plan, account, address, {}, "the request ended before the answer came")
            raise
        plan.outcomes, plan.details = done.outcomes, done.details
        failed = [each for each in done.outcomes if each.error is not None]
        plan.state = "failed" if failed and len(failed) == len(done.outcomes) else "done"
        self._audit(plan, account, address, {each.subject: each for each in failed}, "")
        self._console.collector.hurry()

    def _audit(
        self,
        plan: Plan,
        account: Account,
        address: str,
        failed: Mapping[str, OutcomeRow],
        failure: str,
    ) -> None:
        """A line for each change, and one for the rest if there are very many."""
        draft = plan.draft
        changes = draft.changes if draft.audited is None else draft.audited
        for change in changes[:AUDITED_MAX] or [Change(draft.title)]:
            wrong = failed.get(change.subject)
            outcome = failure or ("done" if wrong is None else f"{wrong.error}: {wrong.message}")
            self._console.audit.record(
                account.name,
                address,
                plan.kind,
                change.subject,
                before=change.before,
                after=change.after,
                outcome=outcome,
            )
        if len(changes) > AUDITED_MAX:
            rest = f"and {len(changes) - AUDITED_MAX} more"
            self._console.audit.record(account.name, address, plan.kind, draft.title, after=rest)


def outcome_rows(outcomes: Mapping[Any, KafkaError | None]) -> list[OutcomeRow]:
    """The client's outcomes as rows."""
    return [
        OutcomeRow(str(subject))
        if error is None
        else OutcomeRow(str(subject), error.error.name, error.message or "")
        for subject, error in outcomes.items()
    ]
