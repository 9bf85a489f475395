"""`odradek brokers`: empty one before it leaves, fill one that has come."""

from typing import TYPE_CHECKING

import click

from odradek.cli.output import examples, json_option
from odradek.cli.rebalance import finish, plan_for, usable_settings
from odradek.cli.session import with_cluster

if TYPE_CHECKING:
    from odradek.client import Blocking


@click.group(epilog=examples("odradek brokers drain 4", "odradek brokers add 9"))
def brokers() -> None:
    """Plan to empty brokers before they leave, or to fill new ones."""


ids = click.argument("ids", nargs=-1, required=True, type=click.IntRange(0), metavar="ID...")


@brokers.command(epilog=examples("odradek brokers drain 4"))
@ids
@json_option
@with_cluster
def drain(cluster: "Blocking", ids: tuple[int, ...], as_json: bool) -> None:
    """Plan to move all replicas off brokers. Nothing is moved yet.

    The same plan evens out the rest of the cluster: replicas that have to be copied anyway go to
    the brokers with the least load. Exits with 1 if a replica has no other place.
    """
    found = plan_for(cluster, usable_settings(None), remove=frozenset(ids))
    finish(cluster, found, as_json=as_json)


@brokers.command(epilog=examples("odradek brokers add 9"))
@ids
@json_option
@with_cluster
def add(cluster: "Blocking", ids: tuple[int, ...], as_json: bool) -> None:
    """Plan to give new brokers their share. Nothing is moved yet."""
    known = cluster.run(cluster.client.refresh()).nodes
    for id in ids:
        if id not in known:
            alive = ", ".join(map(str, sorted(known)))
            raise click.ClickException(f"broker {id} is not alive; {alive} are: start it first")
    finish(cluster, plan_for(cluster, usable_settings(None)), as_json=as_json)
