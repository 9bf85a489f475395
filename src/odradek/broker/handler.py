"""The two names every handler needs: the broker it serves and the context of its request.

Handlers are imported when their API is first requested, after the broker's own modules, so they can
import this at run time.
"""

from odradek.broker.routes import RequestContext
from odradek.broker.server import Broker

__all__ = ["Broker", "RequestContext"]
