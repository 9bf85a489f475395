"""The options of a table as a Spark source. Needs neither Spark nor the table."""

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.spark.client_settings import refuse_names
from odradek.spark.errors import OptionError
from odradek.spark.tables.location import Location

NAME = "odradek-table"
PATH, VERSION = "path", "version"
STARTING, LIMIT = "startingVersion", "maxVersionsPerTrigger"
STORAGE = "storage."
LATEST = "latest"
OF_A_BATCH = (PATH, VERSION)
OF_A_STREAM = (PATH, STARTING, LIMIT)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What to read of a table, and where it is."""

    location: Location
    version: int | None = None
    starting: int | None = None
    is_latest: bool = False
    limit: int | None = None


def table_options(options: Mapping[str, str], streaming: bool | None) -> TableOptions:
    """OptionError for what is unknown or malformed. Where it is not known yet whether a table is
    read as a stream, None, either's are options."""
    given = {name.lower(): value for name, value in options.items()}
    names = [
        *(OF_A_BATCH if not streaming else ()),
        *(OF_A_STREAM if streaming is not False else ()),
    ]
    refuse_names(given, names, (STORAGE,))
    if not given.get(PATH):
        raise OptionError("say which table: load(path)")
    storage = {
        name.removeprefix(STORAGE): value
        for name, value in given.items()
        if name.startswith(STORAGE)
    }
    is_latest = given.get(STARTING.lower()) == LATEST
    return TableOptions(
        Location.of(given[PATH], storage),
        _number(given, VERSION),
        None if is_latest else _number(given, STARTING),
        is_latest,
        _number(given, LIMIT, at_least=1),
    )


def _number(given: Mapping[str, str], name: str, at_least: int = 0) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < at_least:
        raise OptionError(f"{name} must be a number of {at_least} or more, got {text!r}")
    return int(text)
