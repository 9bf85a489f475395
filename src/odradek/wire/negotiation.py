"""Which versions of its APIs a peer serves: the first question where versions are negotiated.

KIP-35. Connections whose versions are fixed by the inter-broker protocol do not ask.
"""

from collections.abc import Mapping
from typing import TypeAlias

from odradek import __version__

from .api import APIS
from .connection import Connection
from .errors import ErrorCode, KafkaError
from .messages.api_versions import ApiVersionsRequest

__all__ = ["FIRST_QUESTION", "ServedVersions", "common_version", "served_versions"]

SOFTWARE_NAME = "odradek"
# The version of ApiVersions to begin with: v4 has nothing more for us, and fewer brokers know it.
FIRST_QUESTION = 3

# The lowest and highest version of each API.
ServedVersions: TypeAlias = Mapping[int, tuple[int, int]]


async def served_versions(
    connection: Connection, question_version: int = FIRST_QUESTION
) -> ServedVersions:
    """What the peer serves, as it says; ConnectionError if it does not say."""
    request = ApiVersionsRequest(
        client_software_name=SOFTWARE_NAME, client_software_version=__version__
    )
    response = await connection.request(request, question_version)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        # It answered in v0, which it may have cut short.
        response = await connection.request(request, 0)
    if response.error_code:
        raise ConnectionError(
            f"{connection.peer} does not say what it serves: error {response.error_code}"
        )
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


def common_version(
    served: ServedVersions, api_key: int, *, ours_max: int | None = None, peer: str
) -> int:
    """The highest version that both sides know; UNSUPPORTED_VERSION if there is none."""
    api = APIS[api_key]
    highest = api.max_version if ours_max is None else ours_max
    if api_key not in served:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"the broker {peer} does not serve {api.name}"
        )
    theirs_min, theirs_max = served[api_key]
    version = min(highest, theirs_max)
    if version < max(api.min_version, theirs_min):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the broker {peer} serves {api.name} {theirs_min} to "
            f"{theirs_max}, and we know {api.min_version} to {highest}",
        )
    return version
