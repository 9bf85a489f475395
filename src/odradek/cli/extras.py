"""What to say when a command needs an extra that is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

CONSOLE_MODULES = frozenset({"starlette", "uvicorn", "anyio", "h11"})


@contextmanager
def needs_console() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in CONSOLE_MODULES:
            raise
        raise click.ClickException(
            f'the console needs {error.name}: pip install "odradek[console]"'
        ) from None
