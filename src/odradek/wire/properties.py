"""Java's properties files, as Kafka's brokers, tools and clients are configured with."""

import re

__all__ = ["decode_properties"]

_LINE_END = re.compile(r"\r\n|\r|\n")


def decode_properties(text: str) -> dict[str, str]:
    """Java's properties: comments, continued lines, `=`, `:` or a blank between name and value."""
    properties: dict[str, str] = {}
    logical = ""
    for line in [*_LINE_END.split(text), ""]:
        piece = line.lstrip(" \t\f")
        if not logical and (not piece or piece[0] in "#!"):
            continue
        logical += piece
        if (len(logical) - len(logical.rstrip("\\"))) % 2 == 1:
            logical = logical[:-1]
            continue
        match = re.match(r"((?:\\.|[^\\:=\s])*)[ \t\f]*[:=]?[ \t\f]*(.*)\Z", logical, re.DOTALL)
        assert match is not None, logical
        properties[_unescape_property(match[1])] = _unescape_property(match[2])
        logical = ""
    return properties


def _unescape_property(text: str) -> str:
    controls = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

    def replace(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 16))
        return controls.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replace, text)
