"""`odradek rebalance apply|status|stop|rollback|pause|resume|watch`: plans being carried out."""

import asyncio
import getpass
import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.decorators import FC

from odradek.cli.output import (
    Listing,
    duration,
    examples,
    json_option,
    moment,
    parse_size,
    plural,
    print_json,
    progress,
    size,
)
from odradek.cli.rebalance import (
    read_plan,
    rebalance,
    settings_option,
    span_s,
    usable_settings,
)
from odradek.cli.session import with_cluster

if TYPE_CHECKING:
    from odradek.balance.execution import Applied, Standing
    from odradek.balance.plan import Plan
    from odradek.balance.plan_store import PlanStore
    from odradek.balance.settings import Settings
    from odradek.client import Blocking

__all__ = ["rebalance"]

WATCH_S = 0.5
# Brokers learn of the last leader a moment after the controller has elected it.
HEARSAY_MS = 5_000
NO_LIMIT = "none"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _store(cluster: "Blocking") -> "PlanStore":
    from odradek.balance.plan_store import PlanStore

    return PlanStore(cluster.admin)


def _rate(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The callback of --throttle: a rate as it is written, or none."""
    try:
        if value not in (None, NO_LIMIT):
            parse_size(value)
        return value
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _throttle(given: str | None, settings: "Settings") -> int | None:
    """The rate that was given, else that of the settings; None for no limit."""
    if given is None:
        return settings.pace.throttle
    return None if given == NO_LIMIT else parse_size(given)


throttle_option = click.option(
    "--throttle",
    callback=_rate,
    metavar="RATE",
    help="Bytes per second that each broker copies, none for no limit; default: that of the "
    "settings, or 50MB.",
)


def _warn_if_paused(cluster: "Blocking") -> None:
    pause = cluster.run(_store(cluster).read()).pause
    if pause is not None and pause.holds(_now_ms()):
        click.echo(f"note: {_described(pause)}", err=True)


def _described(pause: Any) -> str:
    until = "until resumed" if pause.until_ms is None else f"until {moment(pause.until_ms)}"
    return f"healing is paused {until} by {pause.by or 'an unknown user'}: {pause.because}"


@rebalance.command(
    epilog=examples(
        "odradek rebalance apply 20261116-1", "odradek rebalance apply plan.json --throttle 100MB"
    )
)
@click.argument("plan")
@throttle_option
@settings_option
@click.option("--wait/--no-wait", default=False, help="Show progress until the plan has ended.")
@json_option
@with_cluster
def apply(
    cluster: "Blocking",
    plan: str,
    throttle: str | None,
    settings: Path | None,
    wait: bool,
    as_json: bool,
) -> None:
    """Carry out a plan, by its id or from a file. The controller does it: this command may end.

    A plan that is stale is refused with exit code 1. Applied again, a plan goes on."""
    from odradek.balance import execution

    chosen = usable_settings(settings)
    rate = _throttle(throttle, chosen)
    store = _store(cluster)
    file = Path(plan)
    wanted = read_plan(file) if file.is_file() else cluster.run(store.read()).plan(plan)
    _warn_if_paused(cluster)
    cluster.run(execution.set_pace(cluster.admin, chosen.pace.limits))
    applied = cluster.run(
        execution.apply(cluster.admin, store, wanted, throttle=rate, by=_user(), now_ms=_now_ms())
    )
    _report(cluster, wanted, applied, wait=wait, as_json=as_json)


def _report(
    cluster: "Blocking",
    plan: "Plan",
    applied: "Applied",
    *,
    wait: bool,
    as_json: bool,
    left_alone: tuple[str, ...] = (),
) -> None:
    """What became of a plan that was handed over; exits with 1 if a move was refused."""
    if applied.is_fed and not wait:
        click.echo(
            "the active controller is Apache Kafka's: this command hands it the moves, a few at a "
            "time; if it ends, `odradek rebalance watch` continues, or apply the plan again",
            err=True,
        )
    standing = _until_ended(cluster, plan.id) if wait or applied.is_fed else None
    if as_json:
        found: dict[str, object] = {
            "id": plan.id,
            "accepted": applied.accepted,
            "dropped": list(applied.dropped),
            "refused": {str(tp): str(error) for tp, error in applied.refused.items()},
            "left_alone": list(left_alone),
        }
        print_json(found | ({} if standing is None else {"status": _row(standing)}))
    else:
        click.echo(f"plan {plan.id}: {plural(applied.accepted, 'move')} handed to the controller")
        for name in applied.dropped:
            click.echo(f"{name}: left out, it is not where the plan has it", err=True)
        for name in left_alone:
            click.echo(f"{name}: left alone, it was moved since", err=True)
        for tp, error in applied.refused.items():
            click.echo(f"{tp}: {error}", err=True)
        if standing is None:
            click.echo(f"see `odradek rebalance status {plan.id}`")
        else:
            _print(standing)
    if applied.refused or (standing is not None and standing.failed):
        click.get_current_context().exit(1)


def _until_ended(cluster: "Blocking", id: str) -> "Standing":
    """Show progress until nothing of the plan moves or waits."""
    from odradek.balance import execution

    async def watch() -> "Standing":
        store = _store(cluster)
        with progress() as shown:
            task = shown.add_task("moving", total=None)
            active_ms = _now_ms()
            while True:
                now_ms = _now_ms()
                now = await execution.status(cluster.admin, store, id, now_ms=now_ms)
                if now.run.is_fed:
                    await execution.feed(cluster.admin, await store.read(), id)
                if now.is_active:
                    active_ms = now_ms
                elif not now.failed or now_ms - active_ms > HEARSAY_MS:
                    return now
                shown.update(
                    task,
                    description=f"{plural(now.moving, 'partition')} moving, {now.waiting} waiting",
                    completed=now.done_bytes,
                    total=now.total_bytes or None,
                )
                await asyncio.sleep(WATCH_S)

    try:
        return cluster.run(watch())
    except KeyboardInterrupt:
        click.echo(
            f"moves that have started continue; see `odradek rebalance status {id}`, or stop them "
            f"with `odradek rebalance stop {id}`",
            err=True,
        )
        raise


def _row(standing: "Standing") -> dict[str, object]:
    run = standing.run
    return {
        "id": standing.plan.id,
        "state": run.state.value,
        "by": run.by,
        "started_ms": run.started_ms,
        "ended_ms": run.ended_ms,
        "rollback_of": run.rollback_of,
        "moves": len(standing.plan.moves),
        "done": standing.done,
        "moving": standing.moving,
        "waiting": standing.waiting,
        "dropped": list(run.dropped),
        "unmoved": list(standing.unmoved),
        "done_bytes": standing.done_bytes,
        "total_bytes": standing.total_bytes,
        "percent": round(standing.percent, 1),
        "seconds_left": standing.seconds_left,
        "throttle": run.throttle,
        "left_settings": list(standing.left_settings),
    }


def _print(standing: "Standing") -> None:
    run = standing.run
    text = (
        f"plan {standing.plan.id}: {run.state.value}, {standing.done} of "
        f"{plural(len(standing.plan.moves), 'move')} done"
    )
    if standing.is_active:
        text += f", {standing.moving} moving, {standing.waiting} waiting"
    text += f"; {size(standing.done_bytes)} of {size(standing.total_bytes)}"
    if standing.seconds_left is not None:
        text += f", ~{duration(standing.seconds_left)} left"
    click.echo(text)
    if run.state.value in ("done", "stopped") and not standing.is_active:
        for name in standing.unmoved:
            click.echo(f"{name}: not moved as planned")
    for name in standing.left_settings:
        click.echo(f"{name}: changed meanwhile or its broker is away, left as it is")


def _chosen(cluster: "Blocking", id: str | None) -> str:
    """The plan named, or else the one that runs or ran last."""
    found = id or cluster.run(_store(cluster).read()).latest()
    if found is None:
        raise click.ClickException("there is no plan; make one with `odradek rebalance plan`")
    return found


@rebalance.command(epilog=examples("odradek rebalance status", "odradek rebalance status --all"))
@click.argument("id", required=False)
@click.option("--all", "every", is_flag=True, help="List the plans there are.")
@json_option
@with_cluster
def status(cluster: "Blocking", id: str | None, every: bool, as_json: bool) -> None:
    """Show a plan's progress in bytes and time left; default: the one that runs, or else was
    started or made last."""
    from odradek.balance import execution

    _warn_if_paused(cluster)
    if every:
        stored = cluster.run(_store(cluster).read())
        rows = [
            {
                "id": key,
                "state": stored.run(key).state.value,
                "moves": len(plan.moves),
                "bytes": plan.cost.bytes,
                "by": stored.run(key).by,
            }
            for key, plan in stored.plans.items()
        ]
        columns = {"plan": "id", "state": "state", "moves": "moves", "bytes": "bytes", "by": "by"}
        Listing(rows, columns).show(as_json, empty="there is no plan")
        return
    chosen = _chosen(cluster, id)
    standing = cluster.run(
        execution.status(cluster.admin, _store(cluster), chosen, now_ms=_now_ms())
    )
    print_json(_row(standing)) if as_json else _print(standing)


@rebalance.command(epilog=examples("odradek rebalance stop", "odradek rebalance stop --now"))
@click.argument("id", required=False)
@click.option("--now", "at_once", is_flag=True, help="Take back what is under way, too.")
@json_option
@with_cluster
def stop(cluster: "Blocking", id: str | None, at_once: bool, as_json: bool) -> None:
    """Start no more moves of a plan. Copies under way are finished, unless --now."""
    from odradek.balance import execution

    standing = cluster.run(
        execution.stop(
            cluster.admin,
            _store(cluster),
            _chosen(cluster, id),
            at_once=at_once,
            now_ms=_now_ms(),
        )
    )
    print_json(_row(standing)) if as_json else _print(standing)


@rebalance.command(epilog=examples("odradek rebalance rollback 20261116-1 --wait"))
@click.argument("id")
@throttle_option
@settings_option
@click.option("--wait/--no-wait", default=False, help="Show progress until it has ended.")
@json_option
@with_cluster
def rollback(
    cluster: "Blocking",
    id: str,
    throttle: str | None,
    settings: Path | None,
    wait: bool,
    as_json: bool,
) -> None:
    """Stop a plan and move back what it moved, as a plan of its own. Partitions that something
    else has moved since are left alone and listed."""
    from odradek.balance import execution

    chosen = usable_settings(settings)
    rate = _throttle(throttle, chosen)
    cluster.run(execution.set_pace(cluster.admin, chosen.pace.limits))
    back, applied, left_alone = cluster.run(
        execution.rollback(
            cluster.admin, _store(cluster), id, throttle=rate, by=_user(), now_ms=_now_ms()
        )
    )
    _report(cluster, back, applied, wait=wait, as_json=as_json, left_alone=left_alone)


def after_option(name: str, help: str) -> Callable[[FC], FC]:
    """An option that takes a time, and is a setting of [heal] as well."""
    return click.option(name, callback=span_s, metavar="SPAN", help=help)


@rebalance.command(epilog=examples("odradek rebalance watch", "odradek rebalance watch --json"))
@after_option("--broker-after", "A broker that is gone is replaced after this; default: 15min.")
@after_option("--directory-after", "The same for a failed log directory; default: 2min.")
@after_option("--disk-after", "The same for a disk that is over 90 % full; default: 5min.")
@after_option("--controller-after", "A new controller is left alone for this; default: 2min.")
@after_option("--interval", "How often to look; default: 10s.")
@throttle_option
@settings_option
@json_option
@with_cluster
def watch(
    cluster: "Blocking",
    broker_after: float | None,
    directory_after: float | None,
    disk_after: float | None,
    controller_after: float | None,
    interval: float | None,
    throttle: str | None,
    settings: Path | None,
    as_json: bool,
) -> None:
    """Repair what fails, until stopped: replicas of brokers that are gone, of failed directories
    and of full disks go elsewhere. Any number of watchers may run; one of them acts. Options go
    before the settings of [heal]."""
    from odradek.balance.watcher import Watcher

    chosen = usable_settings(settings)
    rate = _throttle(throttle, chosen)
    if rate is None:
        raise click.UsageError("repairs are always throttled: --throttle takes a rate")
    given = {
        "broker_s": broker_after,
        "directory_s": directory_after,
        "disk_s": disk_after,
        "controller_s": controller_after,
    }
    waits = replace(
        chosen.heal.waits, **{name: each for name, each in given.items() if each is not None}
    )
    interval_s = chosen.heal.interval_s if interval is None else interval
    heal = replace(chosen.heal, waits=waits, interval_s=interval_s)
    pace = replace(chosen.pace, throttle=rate)
    watcher = Watcher(cluster.admin, replace(chosen, heal=heal, pace=pace), _now_ms)
    _compile_ahead()
    if not as_json:
        click.echo("watching; Ctrl-C ends it")
    held_by = done = ""
    for report in cluster.iterate(watcher.run()):
        found = report.diagnosis
        lines = list(found.news)
        if report.done != done and report.done:
            lines.append(report.done)
        done = report.done
        if found.held_by != held_by:
            held_by = found.held_by
            lines.append(f"not repaired: {held_by}" if held_by else "nothing holds repairs back")
        for line in lines:
            at = moment(_now_ms())
            click.echo(json.dumps({"at": at, "text": line}) if as_json else f"{at} {line}")


def _compile_ahead() -> None:
    """Have the planner compiled by the time that a repair needs it; without it, or until then,
    repairs go by count."""
    try:
        from odradek.balance.compilation import compile_apart, is_compiled
    except ImportError:
        return
    if not is_compiled():
        compile_apart()


@rebalance.command(epilog=examples("odradek rebalance pause --for 2h --because 'new switches'"))
@click.option("--for", "span", callback=span_s, metavar="SPAN", help="30min, 2h; until then.")
@click.option("--because", required=True, help="Shown by every command that meets the pause.")
@json_option
@with_cluster
def pause(cluster: "Blocking", span: float | None, because: str, as_json: bool) -> None:
    """Keep the watcher from starting anything by itself. Plans that run continue."""
    from odradek.balance.plan_store import Pause

    now_ms = _now_ms()
    until = None if span is None else now_ms + int(span * 1000)
    made = Pause(because, _user(), now_ms, until)
    cluster.run(_store(cluster).set_pause(made))
    print_json(asdict(made)) if as_json else click.echo(_described(made))


@rebalance.command(epilog=examples("odradek rebalance resume"))
@json_option
@with_cluster
def resume(cluster: "Blocking", as_json: bool) -> None:
    """End a pause of the watcher."""
    cluster.run(_store(cluster).set_pause(None))
    print_json({"pause": None}) if as_json else click.echo("healing is not paused")
