"""The format `odradek` as Spark sees it: checks the options, and hands out readers and writers.

docs/spec/spark-kafka-format.md section 7 (b): what is wrong is best said at `load()`, so options
are checked as soon as Spark asks for the columns. It does not say then whether a batch or a stream
is meant: options that suit either pass, and the reader checks again.
"""

import logging

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from odradek.spark.batch_reader import BatchReader
from odradek.spark.errors import OptionError, plainly
from odradek.spark.options import boolean_option, source_options, without_effect
from odradek.spark.stream_reader import StreamReader

logger = logging.getLogger(__name__)

NAME = "odradek"
COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
HEADERS = ", headers array<struct<key:string,value:binary>>"


class OdradekSource(DataSource):
    """Reads and writes the topics of a Kafka cluster."""

    @classmethod
    def name(cls) -> str:
        return NAME

    @property
    def _given(self) -> dict[str, str]:
        return dict(self.options.items())

    def schema(self) -> str:
        given = self._given
        with plainly():
            try:
                source_options(given, streaming=False)
            except OptionError:
                # A stream would only hear that it has no end.
                if any(name.lower().startswith("ending") for name in given):
                    raise
                source_options(given, streaming=True)
            return self._columns()

    def _columns(self) -> str:
        return COLUMNS + HEADERS if boolean_option(self._given, "includeHeaders") else COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        with plainly():
            options = source_options(self._given, streaming=False)
            if (refusal := self._refusal(schema)) is not None:
                raise OptionError(refusal)
        if ignored := without_effect(self._given):
            logger.warning("%s: only a stream heeds this, not a batch read", ", ".join(ignored))
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return StreamReader(self._given, self._refusal(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from odradek.spark.sink import BatchWriter

        with plainly():
            if overwrite:
                raise OptionError('a topic cannot be overwritten: use mode("append")')
            return BatchWriter(self._given, schema)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        from odradek.spark.sink import StreamWriter

        with plainly():
            return StreamWriter(self._given, schema)

    def _refusal(self, schema: StructType) -> str | None:
        """What is wrong with columns that the user named, if they are not ours."""
        try:
            columns = self._columns()
        except OptionError as error:
            return str(error)  # of a stream, whose reader must be made before it may complain
        have = [field.simpleString() for field in schema.fields]
        ours = [part.strip().replace(" ", ":", 1) for part in _split(columns)]
        if have == ours:
            return None
        return f"this format has its own columns and takes no schema: {columns}"


def _split(columns: str) -> list[str]:
    """The columns of a DDL text, at the commas that are not inside a type."""
    parts, depth, current = [], 0, ""
    for character in columns:
        depth += (character == "<") - (character == ">")
        if character == "," and not depth:
            parts.append(current)
            current = ""
        else:
            current += character
    return [*parts, current]
