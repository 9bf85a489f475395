"""Where a client's bearer token comes from: JAAS options (development), a file or an endpoint.

docs/spec/security.md, sections 3.7 and 8. All of it blocks, so callers run it off the loop.
"""

import base64
import json
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

from odradek.security.exchange import SaslError
from odradek.security.jaas import JaasEntry

__all__ = ["token_source", "unsecured_token"]

STRING_CLAIM = "unsecuredLoginStringClaim_"
NUMBER_CLAIM = "unsecuredLoginNumberClaim_"
LIST_CLAIM = "unsecuredLoginListClaim_"
LIFETIME = "unsecuredLoginLifeTimeSeconds"
LIFETIME_S = 3600
RESPONSE_BYTES_MAX = 1024 * 1024
TIMEOUT_S = 10.0


def token_source(
    settings: Mapping[str, str],
    jaas: JaasEntry,
    read_file: Callable[[str], bytes],
    now_ms: Callable[[], int],
) -> Callable[[], str]:
    """A function that answers a fresh token. Raises ValueError where none can be had."""
    url = settings.get("sasl.oauthbearer.token.endpoint.url")
    if not url:
        if STRING_CLAIM + "sub" not in jaas.options:
            raise ValueError(
                "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url, or for development"
                f" {STRING_CLAIM}sub in sasl.jaas.config"
            )
        return lambda: unsecured_token(jaas.options, now_ms())
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        return lambda: read_file(urllib.parse.unquote(parts.path)).decode("ascii").strip()
    if parts.scheme not in ("http", "https"):
        raise ValueError("sasl.oauthbearer.token.endpoint.url must be https, http or file")
    if not {"clientId", "clientSecret"} <= set(jaas.options):
        raise ValueError("sasl.jaas.config needs clientId and clientSecret")
    encodes = settings.get("sasl.oauthbearer.header.urlencode", "").lower() == "true"
    return lambda: _granted(url, jaas.options, encodes)


def unsecured_token(options: Mapping[str, str], now_ms: int) -> str:
    """A token without a signature, with the claims that the JAAS options name."""
    claims: dict[str, Any] = {
        "iat": now_ms / 1000,
        "exp": now_ms / 1000 + float(options.get(LIFETIME, LIFETIME_S)),
    }
    for name, value in options.items():
        if name.startswith(STRING_CLAIM):
            claims[name.removeprefix(STRING_CLAIM)] = value
        elif name.startswith(NUMBER_CLAIM):
            claims[name.removeprefix(NUMBER_CLAIM)] = float(value)
        elif name.startswith(LIST_CLAIM) and value:
            claims[name.removeprefix(LIST_CLAIM)] = value[1:].split(value[0])
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def _granted(url: str, options: Mapping[str, str], encodes: bool) -> str:
    """The client-credentials grant: a POST, answered with a JSON object."""
    import urllib.request  # costly, and seldom needed

    form = {"grant_type": "client_credentials"}
    if "scope" in options:
        form["scope"] = options["scope"]
    client = [options["clientId"], options["clientSecret"]]
    if encodes:
        client = [urllib.parse.quote_plus(each) for each in client]
    secret = ":".join(client).encode()
    request = urllib.request.Request(
        url,
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Authorization": "Basic " + base64.b64encode(secret).decode(),
            "Accept": "application/json",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            answer = json.loads(response.read(RESPONSE_BYTES_MAX))
    except (OSError, ValueError, RecursionError) as error:
        raise SaslError(f"the token endpoint gave no token: {error}") from None
    token = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(token, str) or not token:
        raise SaslError("the token endpoint's answer has no access_token")
    return token


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
