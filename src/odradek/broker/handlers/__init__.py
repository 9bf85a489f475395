"""One handler per API, each in the module that has the API's name.

A module has `handle(broker, request, context)`, in one of three forms:

- `def`, returning the response
- `async def`: the connection starts nothing else until it has returned
- `def`, returning a `Reply`, for responses that are there now at one time and later at another;
  only a `Reply.later` lets the requests behind it start, and only a `Reply` can be None (acks=0)

It raises KafkaError to refuse the whole request; the response is then made from the schemas, unless
the module has a `refuse(request, error, context)` of its own. `CONTROLLER_ONLY = True` has every
other broker answer NOT_CONTROLLER. The versions served are those of `wire.api`.
"""

from collections.abc import Mapping
from pkgutil import iter_modules

from odradek.wire.api import APIS, ApiKey

_MODULES = frozenset(module.name for module in iter_modules(__path__))

# Every API that has a module here is served.
HANDLERS: Mapping[int, str] = {
    key: key.name.lower() for key in ApiKey if key.name.lower() in _MODULES
}


def served_versions(key: int) -> range:
    api = APIS[key]
    return range(api.min_version, api.max_version + 1)
