"""A pipeline as its file describes it, checked before Spark starts.

Every refusal names the file, the line and the field, and a misspelt field the one that was meant.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.spark.errors import OptionError
from odradek.spark.options import source_options
from odradek.spark.pipeline.avro import load_schema
from odradek.spark.pipeline.ddl import DdlError, check_schema
from odradek.spark.pipeline.toml_lines import Lines
from odradek.spark.pipeline.toml_lines import Path as Where

# What can be decoded and where it can go, each with the fields that only it heeds.
FORMATS = {
    "json": "schema options",
    "csv": "schema options",
    "avro": "schema_file confluent",
    "raw": "",
}
KINDS = {"parquet": "path partition_by", "topic": "topic key options", "console": ""}
MODES = ("append", "update", "complete")
AVAILABLE_NOW = "available-now"
BOOTSTRAP = "kafka.bootstrap.servers"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
INTERVAL = re.compile(r"\d+\s+(millisecond|second|minute|hour|day)s?")


class SpecError(Exception):
    """A pipeline file that cannot be run; says where and why."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late an event may come and still count."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class Decode:
    """How the value of a record becomes columns."""

    format: str
    schema: str = ""
    schema_file: Path | None = None
    confluent: bool = False
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source:
    """Topics, decoded, as a view."""

    name: str
    options: Mapping[str, str]
    decode: Decode
    watermark: Watermark | None = None

    @property
    def bootstrap(self) -> str:
        return self.options[BOOTSTRAP]


@dataclass(frozen=True, slots=True)
class Step:
    """A view made of earlier ones by SQL."""

    name: str
    sql: str
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True)
class Sink:
    """Where a view goes."""

    name: str
    view: str
    kind: str
    mode: str = "append"
    path: str = ""
    partition_by: tuple[str, ...] = ()
    topic: str = ""
    key: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Everything a run needs to know."""

    name: str
    checkpoint: str
    sources: tuple[Source, ...]
    sinks: tuple[Sink, ...]
    steps: tuple[Step, ...] = ()
    master: str = "local[*]"
    trigger: str = ""
    dead_letters: str = ""
    spark: Mapping[str, str] = field(default_factory=dict)


def load(path: Path) -> Pipeline:
    """Read and check a pipeline file; SpecError says what is wrong and where."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: byte {error.start} is not UTF-8") from None
    return parse(text, path)


def parse(text: str, path: Path) -> Pipeline:
    """A pipeline from the text of its file; relative paths are relative to the file."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: {error}") from None
    return _Reader(path, Lines(text)).pipeline(values)


class _Reader:
    """Takes the values of a file apart, and complains with the line."""

    def __init__(self, path: Path, lines: Lines) -> None:
        self._path = path
        self._lines = lines
        self._views: set[str] = set()

    def pipeline(self, values: dict[str, Any]) -> Pipeline:
        top = self._table(
            values,
            (),
            "name checkpoint master trigger source step sink dead_letters spark bootstrap",
        )
        trigger = top.text("trigger", "")
        if trigger and trigger != AVAILABLE_NOW and not INTERVAL.fullmatch(trigger):
            raise self.error(("trigger",), f'"{AVAILABLE_NOW}" or a time such as "10 seconds"')
        bootstrap = top.text("bootstrap", "")
        sources = tuple(self._source(table, bootstrap) for table in top.tables("source"))
        if not sources:
            raise self.error((), "a [[source]] is needed: the topics to read")
        steps = tuple(self._step(table) for table in top.tables("step"))
        sinks = tuple(self._sink(table) for table in top.tables("sink"))
        if not sinks:
            raise self.error((), "a [[sink]] is needed: where the data goes")
        names = [sink.name for sink in sinks]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise self.error(("sink", index, "name"), f"another sink is called {name}")
        dead = top.table("dead_letters", "topic")
        return Pipeline(
            name=top.text("name", self._path.stem),
            checkpoint=self._local(top.text("checkpoint")),
            sources=sources,
            sinks=sinks,
            steps=steps,
            master=top.text("master", "local[*]"),
            trigger=trigger,
            dead_letters=dead.text("topic") if dead else "",
            spark=top.texts("spark"),
        )

    def error(self, where: Where, text: str) -> SpecError:
        line = self._lines.of(where)
        named = ".".join(str(part) for part in where if not isinstance(part, int))
        return SpecError(f"{self._path}:{line}: {named + ': ' if named else ''}{text}")

    def _table(self, values: dict[str, Any], where: Where, known: str) -> "_Table":
        table = _Table(self, values, where)
        for name in values:
            if name not in known.split():
                near = difflib.get_close_matches(name, known.split(), n=1)
                hint = f"; did you mean {near[0]}?" if near else f"; there are {known}"
                raise self.error((*where, name), f"unknown field{hint}")
        return table

    def table_of(self, values: object, where: Where, known: str) -> "_Table":
        if not isinstance(values, dict):
            raise self.error(where, "must be a table")
        return self._table(values, where, known)

    def _local(self, path: str) -> str:
        """A path as the file means it; an address with a scheme stays."""
        if re.match(r"[a-z][a-z0-9+.-]*:", path):
            return path
        return str((self._path.parent / path).resolve())

    def _name(self, table: "_Table") -> str:
        name = table.text("name")
        if not NAME.fullmatch(name):
            raise self.error((*table.where, "name"), "letters, digits and _ make a name")
        # Spark's views have no upper and lower case: a second would take the place of the first.
        for view in self._views:
            if view.lower() == name.lower():
                raise self.error((*table.where, "name"), f"there is a view {view} already")
        self._views.add(name)
        return name

    def _watermark(self, table: "_Table") -> Watermark | None:
        inner = table.table("watermark", "column delay")
        if inner is None:
            return None
        delay = inner.text("delay")
        if not INTERVAL.fullmatch(delay):
            raise self.error((*inner.where, "delay"), 'a time such as "30 seconds"')
        return Watermark(inner.text("column"), delay)

    def _source(self, values: tuple[dict[str, Any], Where], bootstrap: str) -> Source:
        table = self._table(
            *values, "name topics pattern bootstrap starting options decode watermark"
        )
        options = table.texts("options")
        # Spark reads the names of options in any case.
        for name in [name for name in options if name.lower() == BOOTSTRAP]:
            if table.text("bootstrap", ""):
                raise self.error((*table.where, "options", name), "there is a bootstrap beside it")
            bootstrap = options.pop(name)
        options[BOOTSTRAP] = table.text("bootstrap", bootstrap)
        starting = table.text("starting", "earliest")
        if "startingoffsets" not in map(str.lower, options):
            options["startingOffsets"] = starting
        if topics := table.names("topics"):
            options["subscribe"] = ",".join(topics)
        if pattern := table.text("pattern", ""):
            options["subscribePattern"] = pattern
        try:
            source_options(options, streaming=True)
        except OptionError as error:
            raise self.error(table.where, str(error)) from None
        name = self._name(table)
        return Source(name, options, self._decode(table), self._watermark(table))

    def _decode(self, source: "_Table") -> Decode:
        table = source.table("decode", "format schema schema_file confluent options")
        if table is None:
            return Decode("raw")
        format = table.one_of("format", FORMATS)
        schema, file = table.text("schema", ""), table.text("schema_file", "")
        schema_file = Path(self._local(file)) if file else None
        if format == "avro":
            if schema_file is None or schema:
                raise self.error(table.where, "avro is decoded by the schema of a schema_file")
            if not schema_file.is_file():
                raise self.error((*table.where, "schema_file"), f"there is no file {schema_file}")
            try:
                load_schema(schema_file.read_text(encoding="utf-8"))
            except ValueError as error:
                raise self.error((*table.where, "schema_file"), str(error)) from None
        elif format == "raw":
            if schema or file:
                raise self.error(table.where, "raw is not decoded and takes no schema")
        elif not schema:
            raise self.error(
                table.where, f'{format} needs a schema, such as "id int, at timestamp"'
            )
        else:
            try:
                check_schema(schema)
            except DdlError as error:
                raise self.error((*table.where, "schema"), str(error)) from None
        how = Decode(format, schema, schema_file, table.flag("confluent"), table.texts("options"))
        table.refuse_idle(format, FORMATS)
        return how

    def _step(self, values: tuple[dict[str, Any], Where]) -> Step:
        table = self._table(*values, "name sql watermark")
        return Step(self._name(table), table.text("sql"), self._watermark(table))

    def _sink(self, values: tuple[dict[str, Any], Where]) -> Sink:
        table = self._table(*values, "name from kind mode path partition_by topic key options")
        kind = table.one_of("kind", KINDS)
        view = table.text("from")
        if view not in self._views:
            views = ", ".join(sorted(self._views))
            raise self.error((*table.where, "from"), f"there is no view {view}; there are {views}")
        mode = table.one_of("mode", MODES, "append")
        if kind == "parquet" and mode != "append":
            raise self.error((*table.where, "mode"), "a lake is only appended to")
        table.refuse_idle(kind, KINDS)
        name = table.text("name", view)
        if not NAME.fullmatch(name):
            raise self.error((*table.where, "name"), "letters, digits and _ make a name")
        return Sink(
            name=name,
            view=view,
            kind=kind,
            mode=mode,
            path=self._local(table.text("path")) if kind == "parquet" else "",
            partition_by=tuple(table.names("partition_by")),
            topic=table.text("topic") if kind == "topic" else "",
            key=table.text("key", ""),
            options=table.texts("options"),
        )


class _Table:
    """One table of the file, field by field."""

    def __init__(self, reader: _Reader, values: Mapping[str, Any], where: Where) -> None:
        self._reader = reader
        self._values = values
        self.where = where

    def _error(self, name: str, text: str) -> SpecError:
        return self._reader.error((*self.where, name), text)

    def text(self, name: str, default: str | None = None) -> str:
        value = self._values.get(name, default)
        if value is None:
            raise self._error(name, "is missing")
        if not isinstance(value, str):
            raise self._error(name, f"must be a text in quotes, got {value!r}")
        if not value.strip() and default is None:
            raise self._error(name, "is empty")
        return value

    def one_of(self, name: str, words: Iterable[str], default: str | None = None) -> str:
        value = self.text(name, default)
        if value not in words:
            raise self._error(name, f"must be {', '.join(words)}, got {value!r}")
        return value

    def refuse_idle(self, chosen: str, fields: Mapping[str, str]) -> None:
        """SpecError for a field that is there and that only others than the chosen heed."""
        for name in self._values:
            heeded_by = [one for one, names in fields.items() if name in names.split()]
            if heeded_by and chosen not in heeded_by:
                raise self._error(name, f"means nothing to {chosen}, only to {heeded_by[0]}")

    def flag(self, name: str) -> bool:
        value = self._values.get(name, False)
        if not isinstance(value, bool):
            raise self._error(name, f"must be true or false, got {value!r}")
        return value

    def names(self, name: str) -> list[str]:
        values = self._values.get(name, [])
        if not isinstance(values, list) or not all(isinstance(v, str) and v for v in values):
            raise self._error(name, f'must be a list such as ["a", "b"], got {values!r}')
        return values

    def texts(self, name: str) -> dict[str, str]:
        """A table of settings, whose values may be written as numbers and truths too."""
        values = self._values.get(name, {})
        if not isinstance(values, dict):
            raise self._error(name, "must be a table")
        settings: dict[str, str] = {}
        for key, value in values.items():
            if not isinstance(value, str | int | float | bool):
                raise self._reader.error((*self.where, name, key), f"cannot be {value!r}")
            settings[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return settings

    def table(self, name: str, known: str) -> "_Table | None":
        if name not in self._values:
            return None
        return self._reader.table_of(self._values[name], (*self.where, name), known)

    def tables(self, name: str) -> list[tuple[dict[str, Any], Where]]:
        values = self._values.get(name, [])
        if not isinstance(values, list) or not all(isinstance(v, dict) for v in values):
            raise self._error(name, f"must be written as [[{name}]]")
        return [(value, (*self.where, name, index)) for index, value in enumerate(values)]
