"""What a reader may skip: a data file's statistics as Delta's log has them, from its footer alone.

A reader leaves a file out if its filter cannot hold between the smallest and the largest value. So
a bound may be too wide and never too narrow, and one that cannot be written exactly is left out:

- text is cut to 32 characters, and a largest value that was cut is raised;
- bytes, infinities and decimals of more than 15 digits have no bounds: JSON has no bytes, and
  readers round its numbers; booleans lie between false and true;
- a column for which one row group has no statistics has none;
- nor has a column with a NaN, which some readers take for larger than every number. Spark tells of
  them by giving no bounds; Arrow passes over them, so a writer that uses Arrow must say.

A column without bounds takes those of all others with it: deltalake's `to_pyarrow_dataset`, which
DuckDB and pandas read by, takes a missing bound for "nothing is between null and null" if another
column of the file has one, and does not find the row.
"""

import datetime as dt
import decimal
import json
import math
from collections.abc import Callable, Collection, Iterator
from typing import Any

TEXT_CHARACTERS_MAX = 32
COLUMNS_MAX = 32
DECIMAL_DIGITS_MAX = 15
LAST_BEFORE_SURROGATES, FIRST_AFTER_SURROGATES, LAST_CHARACTER = 0xD7FF, 0xE000, 0x10FFFF

Path = tuple[str, ...]


def statistics_of(footer: Any, with_nan: Collection[str] = ()) -> str:
    """The JSON text of a file's statistics; `footer` is pyarrow's FileMetaData.

    `with_nan` names the columns that Arrow wrote a NaN into."""
    lows: dict[Path, Any] = {}
    highs: dict[Path, Any] = {}
    nulls: dict[Path, int] = {}
    is_complete = True
    for index, path in enumerate(list(leaves(footer.schema.to_arrow_schema()))[:COLUMNS_MAX]):
        if path is None:
            continue
        groups = [footer.row_group(number).column(index) for number in range(footer.num_row_groups)]
        count, bounds = _of_column(groups)
        if count is not None:
            nulls[path] = count
        if bounds is None or path[0] in with_nan:
            # Inside a struct a missing bound does no harm, and bytes never have one.
            is_bytes = groups and groups[0].physical_type == "BYTE_ARRAY" and not _is_text(groups)
            is_complete &= len(path) > 1 or bool(is_bytes)
        elif bounds:
            lows[path], highs[path] = bounds
    found: dict[str, Any] = {"numRecords": footer.num_rows}
    if is_complete:
        found |= {"minValues": _nested(lows), "maxValues": _nested(highs)}
    # Unescaped: deltalake's reader of JSON takes a surrogate pair for another character.
    return json.dumps({**found, "nullCount": _nested(nulls)}, allow_nan=False, ensure_ascii=False)


def columns_with_nan(rows: Any) -> set[str]:
    """The floating-point columns of a batch that a bound would be wrong for."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return {
        one.name
        for one in rows.schema
        if (pa.types.is_floating(one.type) and pc.any(pc.is_nan(rows[one.name])).as_py())
        or (pa.types.is_struct(one.type) and any(pa.types.is_floating(f.type) for f in one.type))
    }


def leaves(schema: Any) -> Iterator[Path | None]:
    """The path of each leaf column in the file's order; None inside lists and maps."""

    def inside(kind: Any, path: Path | None) -> Iterator[Path | None]:
        import pyarrow as pa

        if pa.types.is_struct(kind):
            for field in kind:
                yield from inside(field.type, None if path is None else (*path, field.name))
        elif pa.types.is_map(kind):
            yield from inside(kind.key_type, None)
            yield from inside(kind.item_type, None)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            yield from inside(kind.value_type, None)
        else:
            yield path

    for field in schema:
        yield from inside(field.type, (field.name,))


def _is_text(groups: list[Any]) -> bool:
    return any(one.statistics and str(one.statistics.logical_type) == "String" for one in groups)


def _of_column(groups: list[Any]) -> tuple[int | None, tuple[Any, Any] | tuple[()] | None]:
    """The nulls of a column and its bounds as they are written: () if all values are null, None if
    a row group lacks them or they cannot be written."""
    if not all(one.is_stats_set for one in groups):
        return None, None
    groups_found = [one.statistics for one in groups]
    has_nulls = all(one.has_null_count for one in groups_found)
    nulls = sum(one.null_count for one in groups_found) if has_nulls else None
    bounded = [one for one in groups_found if one.has_min_max]
    unbounded = [one for one in groups_found if not one.has_min_max]
    if any(not one.has_null_count or one.num_values for one in unbounded):
        return nulls, None
    if not bounded:
        return nulls, ()
    try:
        low = _written(min(one.min for one in bounded), _cut)
        high = _written(max(one.max for one in bounded), _raised)
    except (OverflowError, ValueError, NotImplementedError):
        return nulls, None  # a time that Python has no value for
    return nulls, None if low is None or high is None else (low, high)


def _nested(values: dict[Path, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in values.items():
        inner = nested
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = value
    return nested


def _cut(text: str) -> str:
    return text[:TEXT_CHARACTERS_MAX]


def _raised(text: str) -> str | None:
    """The shortest text that is surely not smaller; None if there is none of that length."""
    if len(text) <= TEXT_CHARACTERS_MAX:
        return text
    for index in range(TEXT_CHARACTERS_MAX - 1, -1, -1):
        character = ord(text[index])
        if character == LAST_BEFORE_SURROGATES:
            return text[:index] + chr(FIRST_AFTER_SURROGATES)
        if character < LAST_CHARACTER:
            return text[:index] + chr(character + 1)
    return None


def _written(value: Any, shorten: Callable[[str], str | None]) -> Any:
    """A bound as JSON has it; None if it cannot be written exactly."""
    if isinstance(value, bytes):
        return None
    if isinstance(value, str):
        return shorten(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, decimal.Decimal):
        digits = len(value.as_tuple().digits)
        return float(value) if digits <= DECIMAL_DIGITS_MAX else None
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            return value.isoformat(timespec="microseconds")
        in_utc = value.astimezone(dt.UTC).replace(tzinfo=None)
        return in_utc.isoformat(timespec="microseconds") + "Z"
    if isinstance(value, dt.date):
        return value.isoformat()
    return value
