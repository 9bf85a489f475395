"""Where a key set (JWKS) is fetched from: a file or an endpoint. All of it blocks."""

import urllib.parse
from collections.abc import Callable

__all__ = ["key_set_source"]

RESPONSE_BYTES_MAX = 1024 * 1024
TIMEOUT_S = 10.0


def key_set_source(url: str, read_file: Callable[[str], bytes]) -> Callable[[], bytes]:
    """A function that fetches the document; it raises OSError. Raises ValueError for a URL that
    is none of ours."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        return lambda: read_file(urllib.parse.unquote(parts.path))
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError("sasl.oauthbearer.jwks.endpoint.url must be https, http or file")
    return lambda: _fetched(url)


def _fetched(url: str) -> bytes:
    import http.client
    import urllib.request  # costly, and seldom needed

    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
            document: bytes = response.read(RESPONSE_BYTES_MAX + 1)
    except http.client.HTTPException as error:
        raise OSError(f"the key endpoint does not speak HTTP: {error!r}") from None
    if len(document) > RESPONSE_BYTES_MAX:
        raise OSError(f"the key set is larger than {RESPONSE_BYTES_MAX} bytes")
    return document
