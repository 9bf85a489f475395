"""A pipeline as its file describes it, checked before Spark starts.

Every refusal names the file, the line and the field, and a misspelt field the one that was meant.
"""

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.spark.client_settings import BOOTSTRAP, is_connection_option
from odradek.spark.errors import OptionError, TableError
from odradek.spark.options import source_options
from odradek.spark.pipeline.avro import load_schema
from odradek.spark.pipeline.ddl import DdlError, check_schema
from odradek.spark.pipeline.toml_lines import Lines
from odradek.spark.pipeline.toml_lines import Path as Where
from odradek.spark.tables.location import Location
from odradek.spark.tables.schema import NEW_COLUMNS, REFUSE
from odradek.spark.tables.source_options import PATH, STORAGE, table_options

# What can be decoded and where it can go, each with the fields that only it heeds.
FORMATS = {
    "json": "schema options",
    "csv": "schema options",
    "avro": "schema_file confluent registry",
    "protobuf": "descriptor_file message confluent",
    "telemetry": "",
    "raw": "",
}
SINKS = {
    "table": "path partition_by merge_on new_columns history compact properties storage",
    "topic": "topic key options",
    "console": "",
}
SOURCES = {
    "topic": "topics pattern bootstrap starting decode",
    "table": "path static storage",
    "parquet": "path schema",
    "csv": "path schema",
}
FORBIDDEN_PROPERTIES = ("delta.enabledeletionvectors", "delta.columnmapping.mode")
TIMESTAMPS, MICROSECONDS = "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"
MODES = ("append", "update", "complete")
AVAILABLE_NOW = "available-now"
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
    registry: str = ""
    descriptor_file: Path | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """A view to begin with: topics decoded, the versions of a table, or something static.

    What is static is read again for each batch of a stream that is joined with it."""

    name: str
    options: Mapping[str, str]
    decode: Decode = Decode("raw")
    watermark: Watermark | None = None
    kind: str = "topic"
    path: str = ""
    schema: str = ""
    static: bool = False

    @property
    def bootstrap(self) -> str:
        return self.options.get(BOOTSTRAP, "")

    @property
    def connection(self) -> dict[str, str]:
        """The options that say where its cluster is, and how to connect to it."""
        return {name: of for name, of in self.options.items() if is_connection_option(name)}


@dataclass(frozen=True, slots=True)
class Step:
    """A view made of earlier ones by SQL."""

    name: str
    sql: str
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True)
class Compact:
    """When the small files of a table are rewritten, and as what."""

    every: int = 100
    target_mb: int = 128
    min_files: int = 8


@dataclass(frozen=True, slots=True)
class Sink:
    """Where a view goes. `where` is its place in the file, for complaints."""

    name: str
    view: str
    kind: str
    mode: str = "append"
    path: str = ""
    partition_by: tuple[str, ...] = ()
    merge_on: tuple[str, ...] = ()
    new_columns: str = REFUSE
    history: str = ""
    compact: Compact = Compact()
    properties: Mapping[str, str] = field(default_factory=dict)
    storage: Mapping[str, str] = field(default_factory=dict)
    topic: str = ""
    key: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    where: str = ""


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
    dead_letter_options: Mapping[str, str] = field(default_factory=dict)
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
        if all(source.static for source in sources):
            raise self.error(("source",), "one source at least must be a stream")
        steps = tuple(self._step(table) for table in top.tables("step"))
        sinks = tuple(self._sink(table) for table in top.tables("sink"))
        if not sinks:
            raise self.error((), "a [[sink]] is needed: where the data goes")
        names = [sink.name for sink in sinks]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise self.error(("sink", index, "name"), f"another sink is called {name}")
        spark = top.texts("spark")
        has_tables = any(sink.kind == "table" for sink in sinks)
        if has_tables and spark.get(TIMESTAMPS, MICROSECONDS) != MICROSECONDS:
            raise self.error(("spark", TIMESTAMPS), f"a table's times are {MICROSECONDS}")
        dead = top.table("dead_letters", "topic options")
        return Pipeline(
            name=top.text("name", self._path.stem),
            checkpoint=self._local(top.text("checkpoint")),
            sources=sources,
            sinks=sinks,
            steps=steps,
            master=top.text("master", "local[*]"),
            trigger=trigger,
            dead_letters=dead.text("topic") if dead else "",
            dead_letter_options=dead.texts("options") if dead else {},
            spark=spark,
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
        name = table.name()
        # Spark's views have no upper and lower case: a second would take the place of the first.
        for view in self._views:
            if view.lower() == name.lower():
                raise table.error("name", f"there is a view {view} already")
        self._views.add(name)
        return name

    def _watermark(self, table: "_Table") -> Watermark | None:
        inner = table.table("watermark", "column delay")
        if inner is None:
            return None
        delay = inner.text("delay")
        if not INTERVAL.fullmatch(delay):
            raise inner.error("delay", 'a time such as "30 seconds"')
        return Watermark(inner.text("column"), delay)

    def _source(self, values: tuple[dict[str, Any], Where], bootstrap: str) -> Source:
        known = " ".join(("name kind options watermark", *SOURCES.values()))
        table = self._table(*values, known)
        kind = table.one_of("kind", SOURCES, "topic")
        table.refuse_idle(kind, SOURCES)
        if kind == "topic":
            return self._topics(table, bootstrap)
        name, schema = self._name(table), table.text("schema", "")
        if kind == "csv" and not schema:
            raise self.error(table.where, 'csv needs a schema, such as "id int, at timestamp"')
        if schema:
            self._check_ddl(table, schema)
        path = self._local(table.text("path"))
        options = table.texts("options")
        static = kind != "table" or table.flag("static")
        if kind == "table":
            stored = table.texts("storage").items()
            options |= {f"{STORAGE}{name}": value for name, value in stored}
            try:
                table_options({**options, PATH: path}, streaming=not static)
            except TableError as error:
                raise table.error("path", str(error)) from None
            except OptionError as error:
                raise table.error("options", str(error)) from None
        return Source(
            name, options, Decode("raw"), self._watermark(table), kind, path, schema, static
        )

    def _check_ddl(self, table: "_Table", schema: str) -> None:
        try:
            check_schema(schema)
        except DdlError as error:
            raise table.error("schema", str(error)) from None

    def _topics(self, table: "_Table", bootstrap: str) -> Source:
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
        named = {"subscribe", "subscribepattern", "assign"}
        if not named & {name.lower() for name in options}:
            raise self.error(table.where, "topics or a pattern must say what to read")
        try:
            source_options(options, streaming=True)
        except OptionError as error:
            raise self.error(table.where, str(error)) from None
        name = self._name(table)
        return Source(name, options, self._decode(table), self._watermark(table))

    def _decode(self, source: "_Table") -> Decode:
        known = " ".join(("format", *FORMATS.values()))
        table = source.table("decode", known)
        if table is None:
            return Decode("raw")
        format = table.one_of("format", FORMATS)
        schema = table.text("schema", "")
        how = Decode(
            format,
            schema,
            self._file(table, "schema_file"),
            table.flag("confluent"),
            table.texts("options"),
            table.text("registry", ""),
            self._file(table, "descriptor_file"),
            table.text("message", ""),
        )
        if format == "avro":
            self._check_avro(table, how)
        elif format == "protobuf":
            self._check_protobuf(table, how)
        elif schema:
            self._check_ddl(table, schema)
        elif "schema" in FORMATS[format].split():
            raise self.error(
                table.where, f'{format} needs a schema, such as "id int, at timestamp"'
            )
        table.refuse_idle(format, FORMATS)
        return how

    def _file(self, table: "_Table", name: str) -> Path | None:
        text = table.text(name, "")
        return Path(self._local(text)) if text else None

    def _check_file(self, table: "_Table", name: str, check: Callable[[], object]) -> None:
        """SpecError if the check finds the file of a field missing, or of no use."""
        try:
            check()
        except FileNotFoundError as error:
            raise table.error(name, f"there is no file {error.filename}") from None
        except (OSError, ValueError) as error:
            raise table.error(name, str(error)) from None

    def _check_avro(self, table: "_Table", how: Decode) -> None:
        if how.schema_file is None or how.schema:
            raise self.error(table.where, "avro is decoded by the schema of a schema_file")
        if how.registry and not how.confluent:
            raise table.error("registry", "needs confluent = true")
        file = how.schema_file
        self._check_file(
            table, "schema_file", lambda: load_schema(file.read_text(encoding="utf-8"))
        )

    def _check_protobuf(self, table: "_Table", how: Decode) -> None:
        from odradek.spark.pipeline.protobuf import event_type

        if how.descriptor_file is None or not how.message:
            raise self.error(table.where, "protobuf needs a descriptor_file and a message")
        file = how.descriptor_file
        self._check_file(
            table, "descriptor_file", lambda: event_type(file.read_bytes(), how.message)
        )

    def _step(self, values: tuple[dict[str, Any], Where]) -> Step:
        table = self._table(*values, "name sql watermark")
        return Step(self._name(table), table.text("sql"), self._watermark(table))

    def _sink(self, values: tuple[dict[str, Any], Where]) -> Sink:
        known = " ".join(("name from kind mode", *SINKS.values()))
        table = self._table(*values, known)
        if table.text("kind") == "parquet":
            raise table.error("kind", 'files are landed as a table: kind = "table"')
        kind = table.one_of("kind", SINKS)
        view = table.text("from")
        if view not in self._views:
            views = ", ".join(sorted(self._views))
            raise table.error("from", f"there is no view {view}; there are {views}")
        mode = table.one_of("mode", MODES, "append")
        table.refuse_idle(kind, SINKS)
        name = table.name(view)
        sink = Sink(
            name=name,
            view=view,
            kind=kind,
            mode=mode,
            path=self._local(table.text("path")) if kind == "table" else "",
            partition_by=tuple(table.names("partition_by")),
            merge_on=tuple(table.names("merge_on")),
            new_columns=table.one_of("new_columns", NEW_COLUMNS, REFUSE),
            history=table.text("history", ""),
            compact=self._compact(table),
            properties=table.texts("properties"),
            storage=table.texts("storage"),
            topic=table.text("topic") if kind == "topic" else "",
            key=table.text("key", ""),
            options=table.texts("options"),
            where=f"{self._path}:{self._lines.of(table.where)}",
        )
        if kind == "table":
            self._check_table(table, sink)
        return sink

    def _check_table(self, table: "_Table", sink: Sink) -> None:
        try:
            Location.of(sink.path)
        except TableError as error:
            raise table.error("path", str(error)) from None
        if sink.mode == "update" and not sink.merge_on:
            raise table.error("mode", 'update needs merge_on, such as merge_on = ["minute"]')
        if sink.merge_on and sink.mode != "update":
            raise table.error("merge_on", 'is for mode = "update"')
        if sink.history and not INTERVAL.fullmatch(sink.history):
            raise table.error("history", 'a time such as "7 days"')
        for name in sink.properties:
            if name.lower() in FORBIDDEN_PROPERTIES:
                raise self.error((*table.where, "properties", name), "is not supported")

    def _compact(self, table: "_Table") -> Compact:
        inner = table.table("compact", "every target_mb min_files")
        default = Compact()
        if inner is None:
            return default
        return Compact(
            inner.number("every", default.every),
            inner.number("target_mb", default.target_mb, at_least=1),
            inner.number("min_files", default.min_files, at_least=2),
        )


class _Table:
    """One table of the file, field by field."""

    def __init__(self, reader: _Reader, values: Mapping[str, Any], where: Where) -> None:
        self._reader = reader
        self._values = values
        self.where = where

    def error(self, name: str, text: str) -> SpecError:
        return self._reader.error((*self.where, name), text)

    def text(self, name: str, default: str | None = None) -> str:
        value = self._values.get(name, default)
        if value is None:
            raise self.error(name, "is missing")
        if not isinstance(value, str):
            raise self.error(name, f"must be a text in quotes, got {value!r}")
        if not value.strip() and default is None:
            raise self.error(name, "is empty")
        return value

    def name(self, default: str | None = None) -> str:
        value = self.text("name", default)
        if not NAME.fullmatch(value):
            raise self.error("name", "letters, digits and _ make a name")
        return value

    def one_of(self, name: str, words: Iterable[str], default: str | None = None) -> str:
        value = self.text(name, default)
        if value not in words:
            raise self.error(name, f"must be {', '.join(words)}, got {value!r}")
        return value

    def refuse_idle(self, chosen: str, fields: Mapping[str, str]) -> None:
        """SpecError for a field that is there and that only others than the chosen heed."""
        for name in self._values:
            heeded_by = [one for one, names in fields.items() if name in names.split()]
            if heeded_by and chosen not in heeded_by:
                raise self.error(name, f"means nothing to {chosen}, only to {heeded_by[0]}")

    def flag(self, name: str) -> bool:
        value = self._values.get(name, False)
        if not isinstance(value, bool):
            raise self.error(name, f"must be true or false, got {value!r}")
        return value

    def number(self, name: str, default: int, at_least: int = 0) -> int:
        value = self._values.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
            raise self.error(name, f"must be a number of {at_least} or more, got {value!r}")
        return value

    def names(self, name: str) -> list[str]:
        values = self._values.get(name, [])
        if not isinstance(values, list) or not all(isinstance(v, str) and v for v in values):
            raise self.error(name, f'must be a list such as ["a", "b"], got {values!r}')
        return values

    def texts(self, name: str) -> dict[str, str]:
        """A table of settings, whose values may be written as numbers and truths too."""
        values = self._values.get(name, {})
        if not isinstance(values, dict):
            raise self.error(name, "must be a table")
        settings: dict[str, str] = {}
        for key, value in values.items():
            if isinstance(value, dict):
                raise self._reader.error(
                    (*self.where, name, key), "is a table; a name with dots is written in quotes"
                )
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
            raise self.error(name, f"must be written as [[{name}]]")
        return [(value, (*self.where, name, index)) for index, value in enumerate(values)]
