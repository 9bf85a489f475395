"""One handler per API, each in the module that has the API's name.

A module has `handle(broker, request, context)`, which returns the response, None for no response,
`Waiting` (the requests behind it may start meanwhile) or a coroutine (they may not). A module whose
response has no error code of its own also has `refuse(request, error, context)`. The versions
served are those of `wire.api`.
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
