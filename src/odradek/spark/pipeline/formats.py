"""From records to columns, and what cannot become columns to the dead letters.

A decoded view has the declared columns and one more, `kafka`, with the key, topic, partition,
offset and timestamp of the record. A dead letter is the record's own key and value, with the reason
and the position in its headers.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.spark.pipeline.avro import load_schema
from odradek.spark.pipeline.spec import Decode, Source

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

# From a column of values to structs, null where one could not be decoded, and then why.
DecodeColumn = Callable[["pa.Array"], tuple["pa.Array", list[str | None]]]
MakeDecoder = Callable[[], DecodeColumn]
RECORD = "kafka"
CORRUPT = "_odradek_corrupt"
HEADER_PREFIX = "odradek."


class Decoded(NamedTuple):
    """The two halves of a stream: `letters` is None where nothing can fail."""

    events: "DataFrame"
    letters: "DataFrame | None"


def decode(frame: "DataFrame", source: Source) -> Decoded:
    """A raw stream of records, decoded as its source says."""
    how = source.decode
    if how.format == "raw":
        return Decoded(frame, None)
    if how.format in ("avro", "protobuf", "telemetry"):
        return _decode_in_arrow(frame, how)
    return _decode_text(frame, how)


def _record() -> "Column":
    from pyspark.sql.functions import struct

    return struct("key", "topic", "partition", "offset", "timestamp").alias(RECORD)


def _decode_text(frame: "DataFrame", how: Decode) -> Decoded:
    from pyspark.sql.functions import col, from_csv, from_json, udf
    from pyspark.sql.types import StringType, StructType

    from odradek.spark.pipeline.reasons import reason

    schema = StructType.fromDDL(how.schema)
    assert isinstance(schema, StructType)
    marked = StructType([*schema.fields]).add(CORRUPT, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, **how.options}
    text = col("value").cast("string")
    parsed = (
        from_json(text, marked, options)
        if how.format == "json"
        else from_csv(text, marked.toDDL(), options)
    )
    tried = frame.withColumn("event", parsed)
    is_bad = col("value").isNull() | col("event").isNull() | col(f"event.{CORRUPT}").isNotNull()
    columns = [col(f"event.`{name}`") for name in schema.fieldNames()]
    form = how.format
    explained = udf(lambda value: reason(form, value and bytes(value), schema), "string")
    letters = tried.where(is_bad).select("*", explained("value").alias("reason"))
    return Decoded(tried.where(~is_bad).select(*columns, _record()), letters)


def _decode_in_arrow(frame: "DataFrame", how: Decode) -> Decoded:
    """Decode in Python's workers, a batch at a time."""
    import pyarrow as pa
    from pyspark.sql.functions import col
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StringType, StructType

    decoder: MakeDecoder
    if how.format == "avro":
        assert how.schema_file is not None
        text = how.schema_file.read_text(encoding="utf-8")
        kind, what = load_schema(text).type, "Avro of the schema"
        decoder = partial(_avro_decoder, text, how.confluent, how.registry)
    elif how.format == "telemetry":
        from odradek.spark.pipeline.telemetry import EVENT, decode_values

        kind, what, decoder = EVENT, "a telemetry frame", lambda: decode_values
    else:
        from odradek.spark.pipeline.protobuf import event_type

        assert how.descriptor_file is not None
        descriptors = how.descriptor_file.read_bytes()
        kind, what = event_type(descriptors, how.message), f"a {how.message}"
        decoder = partial(_protobuf_decoder, descriptors, how.message, how.confluent)
    event = from_arrow_schema(pa.schema([pa.field("event", kind)]))["event"]
    out = StructType([*frame.schema.fields, event]).add("reason", StringType())
    tried = frame.mapInArrow(_mapper(decoder, what), out)
    assert isinstance(event.dataType, StructType)
    columns = [col(f"event.`{name}`") for name in event.dataType.fieldNames()]
    events = tried.where(col("reason").isNull()).select(*columns, _record())
    return Decoded(events, tried.where(col("reason").isNotNull()))


def _mapper(make_decoder: MakeDecoder, what: str) -> Any:
    """What a worker does with its batches."""

    def decode_batches(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        decode_column = make_decoder()
        for batch in batches:
            events, reasons = decode_column(batch["value"])
            yield _with_events(batch, events, reasons, what)

    return decode_batches


def _avro_decoder(text: str, confluent: bool, registry: str) -> DecodeColumn:
    from odradek.spark.compilation import compile_apart
    from odradek.spark.pipeline.avro_program import AvroDecoder
    from odradek.spark.pipeline.registry import Registry, RegistryDecoder

    compile_apart("avro")
    plain = AvroDecoder(text)
    if registry:
        return RegistryDecoder(Registry(registry), plain).decode
    return partial(plain.decode, confluent=confluent)


def _protobuf_decoder(descriptors: bytes, message: str, confluent: bool) -> DecodeColumn:
    from odradek.spark.pipeline.protobuf import ProtobufDecoder

    return ProtobufDecoder(descriptors, message, confluent).decode


def _with_events(
    batch: "pa.RecordBatch", events: "pa.Array", reasons: list[str | None], what: str
) -> "pa.RecordBatch":
    import pyarrow as pa

    texts = pa.array([one and f"not {what}: {one}" for one in reasons], pa.string())
    names = [*batch.schema.names, "event", "reason"]
    return pa.RecordBatch.from_arrays([*batch.columns, events, texts], names)


def as_letters(letters: "DataFrame", pipeline: str) -> "DataFrame":
    """Dead letters as rows for the sink: the record as it was, the rest in its headers."""
    from pyspark.sql.functions import array, col, lit, struct

    def header(name: str, value: "Column") -> "Column":
        return struct(
            lit(HEADER_PREFIX + name).alias("key"),
            value.cast("string").cast("binary").alias("value"),
        )

    headers = array(
        header("reason", col("reason")),
        header("topic", col("topic")),
        header("partition", col("partition")),
        header("offset", col("offset")),
        header("timestamp", col("timestamp")),
        header("pipeline", lit(pipeline)),
    )
    return letters.select("key", "value", headers.alias("headers"))
