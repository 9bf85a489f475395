"""All routes there are."""

from odradek.console.routes import Route
from odradek.console.views import (
    brokers,
    controller,
    drills,
    finder,
    groups,
    live,
    login,
    overview,
    partitions,
    pipelines,
    plans,
    records,
    settings,
    topics,
)

ROUTES: tuple[Route, ...] = (
    *login.ROUTES,
    *overview.ROUTES,
    *brokers.ROUTES,
    *topics.ROUTES,
    *partitions.ROUTES,
    *finder.ROUTES,
    *live.ROUTES,
    *records.ROUTES,
    *groups.ROUTES,
    *settings.ROUTES,
    *pipelines.ROUTES,
    *controller.ROUTES,
    *drills.ROUTES,
    *plans.ROUTES,
)
