"""Why a value could not be decoded, in words for the person who finds it among the dead letters.

Spark says only that a row is corrupt. Dead letters are few, so they are looked at again here.
"""

import csv
import json
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    FractionalType,
    IntegralType,
    MapType,
    StringType,
    StructType,
)

BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
NO_VALUE = "the record has no value"
MISFIT = "it does not fit the schema"


def reason(form: str, value: bytes | None, schema: StructType) -> str:
    """Why a value is no JSON or CSV of this schema. Never raises: whatever cannot be explained is
    still a letter, and a failure here would come again with each attempt at its batch."""
    if value is None:
        return NO_VALUE
    explain = _why_not_json if form == "json" else _why_not_csv
    try:
        return explain(value.decode(), schema)
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte {error.start} is {value[error.start]:#04x}"
    except Exception:  # nested too deeply, a line break or 128 KB in one cell: for Python's readers
        return MISFIT


def _why_not_json(text: str, schema: StructType) -> str:
    """What keeps a text from being an object of this schema."""
    try:
        parsed = json.loads(text)
    except ValueError as error:
        return f"not JSON: {error}"
    return _misfit(parsed, schema, "") or MISFIT


def _why_not_csv(text: str, schema: StructType) -> str:
    """What keeps a text from being a line of this schema."""
    cells = next(csv.reader([text]), [])
    if len(cells) != len(schema.fields):
        return f"{len(cells)} columns, and the schema has {len(schema.fields)}"
    for cell, field in zip(cells, schema.fields, strict=True):
        if isinstance(field.dataType, IntegralType | FractionalType):
            try:
                float(cell)
            except ValueError:
                kind = field.dataType.simpleString()
                return f"column {field.name} is {cell[:40]!r}, not {kind}"
    return MISFIT


def _misfit(value: Any, kind: DataType, where: str) -> str | None:
    """The first place where a value is not of its type; None if none is found."""
    if value is None:
        return None
    named = f"field {where}" if where else "the value"
    wrong = f"{named} is {json.dumps(value)[:40]}, not {kind.simpleString()[:40]}"
    if isinstance(kind, StructType):
        if not isinstance(value, dict):
            return wrong
        found = (
            _misfit(value.get(field.name), field.dataType, f"{where}.{field.name}".lstrip("."))
            for field in kind.fields
        )
        return next((misfit for misfit in found if misfit), None)
    if isinstance(kind, ArrayType):
        if not isinstance(value, list):
            return wrong
        items = (_misfit(v, kind.elementType, f"{where}[{i}]") for i, v in enumerate(value))
        return next((misfit for misfit in items if misfit), None)
    if isinstance(kind, MapType):
        return None if isinstance(value, dict) else wrong
    if isinstance(kind, BooleanType):
        return None if isinstance(value, bool) else wrong
    if isinstance(kind, IntegralType):
        bits = BITS[kind.simpleString()]
        fits = isinstance(value, int) and -(2**bits) <= value < 2**bits
        return None if fits and not isinstance(value, bool) else wrong
    if isinstance(kind, FractionalType):
        return None if isinstance(value, int | float) and not isinstance(value, bool) else wrong
    if isinstance(kind, StringType):
        return None
    # Dates and times: only Spark knows every spelling it takes.
    return wrong if isinstance(value, bool | list | dict) else f"{wrong} in a spelling Spark reads"
