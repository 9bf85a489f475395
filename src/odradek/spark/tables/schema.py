"""Whether a frame's columns fit a table's. Both are schemas as Spark writes them, in JSON.

Columns are compared by name. The same type fits; a column that the frame lacks is null; a further
one is refused or added, as the sink says; another type is refused.
"""

import json
from collections.abc import Mapping
from typing import Any

from odradek.spark.errors import TableError

REFUSE, ADD = "refuse", "add"
NEW_COLUMNS = (REFUSE, ADD)
TYPES = """
string long integer short byte float double boolean binary date timestamp timestamp_ntz variant
"""
# Delta's own rule for tables without column mapping; the library accepts such names.
FORBIDDEN_IN_NAMES = " ,;{}()=\n\t"


def nullable(schema_text: str) -> str:
    """The same schema with nothing required and nothing said of its columns; TableError if Delta
    has no such type or name."""
    schema = json.loads(schema_text)
    return json.dumps(_plain(schema, ""))


def missing_columns(table_text: str, frame_text: str, new_columns: str) -> list[dict[str, Any]]:
    """The frame's columns that must be added to the table first; TableError if it cannot fit."""
    table = {one["name"]: one for one in json.loads(table_text)["fields"]}
    folded = {name.lower(): name for name in table}
    added = []
    for column in json.loads(frame_text)["fields"]:
        name = column["name"]
        known = table.get(name)
        if known is None and name.lower() in folded:
            raise TableError(f"column {name}: the table has {folded[name.lower()]}")
        if known is None:
            added.append(column)
        elif _plain(known["type"], "") != _plain(column["type"], ""):
            have, want = type_name(known["type"]), type_name(column["type"])
            raise TableError(f"column {name} is {have} in the table and {want} in the view")
    if added and new_columns != ADD:
        names = ", ".join(column["name"] for column in added)
        raise TableError(f'the table has no column {names}; new_columns = "{ADD}" adds it')
    return added


def type_name(kind: Any) -> str:
    """A type in words: `array<long>`."""
    if not isinstance(kind, Mapping):
        return str(kind)
    if kind["type"] == "array":
        return f"array<{type_name(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{type_name(kind['keyType'])},{type_name(kind['valueType'])}>"
    fields = (f"{one['name']}:{type_name(one['type'])}" for one in kind["fields"])
    return f"struct<{','.join(fields)}>"


def _plain(kind: Any, where: str) -> Any:
    """A type without what does not matter here; TableError names a column that is impossible."""
    if not isinstance(kind, Mapping):
        if kind in TYPES.split() or str(kind).startswith("decimal("):
            return kind
        raise TableError(f"column {where}: a table has no type {kind}")
    if kind["type"] == "struct":
        return {"type": "struct", "fields": [_plain_field(one, where) for one in kind["fields"]]}
    if kind["type"] == "array":
        inner = _plain(kind["elementType"], where)
        return {"type": "array", "elementType": inner, "containsNull": True}
    if kind["type"] == "map":
        key, value = _plain(kind["keyType"], where), _plain(kind["valueType"], where)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    raise TableError(f"column {where}: a table has no type {kind['type']}")


def _plain_field(field: Mapping[str, Any], where: str) -> dict[str, Any]:
    name = field["name"]
    if any(character in FORBIDDEN_IN_NAMES for character in name):
        raise TableError(
            f"column {name!r}: a table's names have none of the characters ,;{{}}()= nor spaces"
        )
    inner = f"{where}.{name}".lstrip(".")
    return {"name": name, "type": _plain(field["type"], inner), "nullable": True, "metadata": {}}
