"""A table as a Spark source read by Arrow in the tasks: a stream of its versions, or all of it.

As a stream, an offset is a version. The first batch has the rows of the table as it is then (or, if
it starts at a version, none); each later one has the rows of the files that were added since.
Rewritten files are passed over: compaction changes no row. A version that changed or removed rows
cannot be part of a stream of rows, and is refused by its number.

In a join with a stream the whole table is read for each batch, as it is at that moment.
"""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from odradek.spark.errors import TableError, plainly
from odradek.spark.tables.data import read_rows
from odradek.spark.tables.inspection import at_version
from odradek.spark.tables.location import Location
from odradek.spark.tables.source_options import NAME, VERSION, TableOptions, table_options
from odradek.spark.tables.table import DataFile, Table, entry_name

if TYPE_CHECKING:
    import pyarrow as pa

BEFORE_ALL = -1


class TableSource(DataSource):
    """Delta tables without a jar."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        with plainly():
            table = Table(table_options(self.options, streaming=None).location)
            return StructType.fromJson(json.loads(table.schema_text()))

    def reader(self, schema: StructType) -> DataSourceReader:
        with plainly():
            return TableReader(table_options(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        with plainly():
            return TableStream(table_options(self.options, streaming=True), schema)


class FilePartition(InputPartition):
    """One task's file."""

    def __init__(self, file: DataFile) -> None:
        super().__init__(file)
        self.file = file


class _Files:
    """Reads data files as rows of the table. Goes to the tasks; needs no `deltalake` there."""

    def __init__(self, location: Location, schema: StructType) -> None:
        self._location = location
        self._schema_text = schema.json()

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        if not isinstance(partition, FilePartition):
            return
        from pyspark.sql.pandas.types import to_arrow_schema

        spark_schema = StructType.fromJson(json.loads(self._schema_text))
        schema = to_arrow_schema(spark_schema, timezone="UTC")
        with plainly():
            yield from read_rows(self._location.files(), partition.file, schema)


class TableReader(_Files, DataSourceReader):
    """The whole table, as it is when the tasks are planned."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        super().__init__(options.location, schema)
        self._version = options.version

    def partitions(self) -> list[InputPartition]:
        with plainly():
            table = at_version(self._location, self._version)
        # Spark reads an empty list as one task that knows what to do.
        return [FilePartition(file) for file in table.data_files()] or [InputPartition(None)]


class TableStream(_Files, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The versions of a table, one after the other."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        super().__init__(options.location, schema)
        self._starting = options.starting
        self._is_latest = options.is_latest
        self._limit = options.limit
        self._table: Table | None = None
        self._target: int | None = None
        self._available_now = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}

    def _newest(self) -> int:
        if self._table is None:
            self._table = Table(self._location)
        self._table.refresh()
        return int(self._table.delta.version())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._available_now = True

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        with plainly():
            if self._is_latest:
                self._is_latest, self._starting = False, self._newest() + 1
        return {VERSION: BEFORE_ALL if self._starting is None else self._starting - 1}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        with plainly():
            if self._target is None or not self._available_now:
                self._target = self._newest()
            newest = self._target
            # The first batch is a version as a whole: there is no part of it to stop at.
            if self._limit is not None and start[VERSION] != BEFORE_ALL:
                newest = min(newest, start[VERSION] + self._limit)
        return {VERSION: max(start[VERSION], newest)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        with plainly():
            if start[VERSION] == BEFORE_ALL:
                files = at_version(self._location, end[VERSION]).data_files()
            else:
                files = added_between(self._location, start[VERSION], end[VERSION])
        return [FilePartition(file) for file in files]

    def commit(self, end: dict[str, int]) -> None:
        pass

    def stop(self) -> None:
        pass


def added_between(location: Location, after: int, until: int) -> list[DataFile]:
    """The files that versions added, without those that only rewrote rows."""
    store = location.files()
    files: list[DataFile] = []
    for version in range(after + 1, until + 1):
        try:
            with store.open_input_stream(f"_delta_log/{entry_name(version)}") as entry:
                actions = [json.loads(line) for line in entry.read().splitlines()]
        except FileNotFoundError:
            raise TableError(
                f"{location.uri}: version {version} is not kept any more, so what it added cannot "
                "be read; start over with a new checkpoint, or keep a longer history"
            ) from None
        files += _added(location, version, actions)
    return files


def _added(location: Location, version: int, actions: list[Mapping[str, Any]]) -> list[DataFile]:
    for removed in (action["remove"] for action in actions if "remove" in action):
        if removed.get("dataChange", True):
            raise TableError(
                f"{location.uri}: version {version} changed or removed rows, and a stream only "
                "reads what is added"
            )
    return [
        DataFile(unquote(added["path"]), added["size"], added.get("partitionValues") or {})
        for added in (action["add"] for action in actions if "add" in action)
        if added.get("dataChange", True)
    ]
