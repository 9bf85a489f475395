"""The name a user probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches

SIMILARITY_MIN = 0.6


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known name most like `name`, as the end of a message; empty if none is like it."""
    near = get_close_matches(name, list(known), n=1, cutoff=SIMILARITY_MIN)
    return f"; did you mean {near[0]}?" if near else ""
