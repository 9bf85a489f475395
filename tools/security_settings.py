"""Writes the table of security settings into docs/security.md, from their declarations.

`make docs` runs this; a test fails when the page is out of date.
"""

from pathlib import Path

from odradek.wire.settings import (
    LISTENER_PREFIX,
    MECHANISM_PREFIXABLE,
    PREFIXABLE,
    SECURITY_SETTINGS,
    Scope,
    Setting,
)

PAGE = Path(__file__).parents[1] / "docs" / "security.md"
BEGIN = "<!-- settings: written by make docs -->\n"
END = "<!-- end of settings -->\n"


def row(setting: Setting) -> str:
    default = (
        "" if setting.default is None else f"`{setting.default}`" if setting.default else "empty"
    )
    prefix = ""
    if setting.name in MECHANISM_PREFIXABLE:
        prefix = "listener, mechanism"
    elif setting.name in PREFIXABLE:
        prefix = "listener"
    changes = "with the prefix" if setting.scope is Scope.PER_BROKER else ""
    return f"| `{setting.name}` | {default} | {prefix} | {changes} | {setting.doc} |"


def table() -> str:
    lines = [
        "| setting | default | prefix | while running | |",
        "|---|---|---|---|---|",
        *(row(setting) for setting in sorted(SECURITY_SETTINGS, key=lambda each: each.name)),
    ]
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + table() + END + after


if __name__ == "__main__":
    assert LISTENER_PREFIX == "listener.name.", "the page says so"
    PAGE.write_text(page(PAGE.read_text()))
