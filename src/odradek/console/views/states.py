"""The states that a tab can watch, by the name of the watch."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.console.views import brokers, controller, drills, groups, overview, pipelines, topics

if TYPE_CHECKING:
    from odradek.console.console import Console


def states_of(console: "Console") -> dict[str, Callable[[str], Any]]:
    def search(id: str) -> Any:
        found = console.searches.find(id)
        return None if found is None else found.answer()

    return {
        "overview": lambda _: overview.state(console),
        "brokers": lambda _: brokers.state(console),
        "topics": lambda _: {
            "version": console.collector.version,
            "total": len(console.collector.table.names),
        },
        "topic": lambda name: topics.topic_state(console, name),
        "groups": lambda _: {
            "version": console.group_lags.version,
            "total": len(console.group_lags.groups),
        },
        "group": lambda id: groups.watched_state(console, id),
        "moves": lambda _: console.moves.answer(),
        "controller": lambda _: controller.state(console),
        "search": search,
        "drill": lambda id: drills.state(console, id),
        "pipelines": lambda _: pipelines.state(console),
    }
