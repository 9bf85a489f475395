"""What the console answers: each module has the routes of one group of questions."""

from odradek.console.routes import Route
from odradek.console.views import brokers, login, overview, topics

ROUTES: tuple[Route, ...] = (
    *login.ROUTES,
    *overview.ROUTES,
    *brokers.ROUTES,
    *topics.ROUTES,
)
