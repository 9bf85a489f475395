"""A pipeline's file: what it means, and where it is wrong."""

from pathlib import Path

import pytest

from odradek.spark.options import Kind, source_options
from odradek.spark.pipeline.spec import Decode, SpecError, Watermark, load, parse

GOOD = """\
checkpoint = "check"
bootstrap = "h:1"

[[source]]
name = "clicks"
topics = ["a", "b"]
options = { maxOffsetsPerTrigger = 1000, failOnDataLoss = false }
watermark = { column = "at", delay = "30 seconds" }
[source.decode]
format = "json"
schema = "page string, at timestamp"

[[step]]
name = "counts"
sql = \"\"\"
SELECT page,
  count(*) AS clicks FROM clicks GROUP BY page
\"\"\"

[[sink]]
from = "clicks"
kind = "table"
path = "lake/clicks"
partition_by = ["page"]

[[sink]]
from = "counts"
kind = "topic"
topic = "out"
mode = "update"

[dead_letters]
topic = "dead"
options = { exactlyOnce = false }

[spark]
"spark.sql.shuffle.partitions" = 4
"""
FILE = Path("/somewhere/clicks.toml")


def test_a_file_with_everything() -> None:
    spec = parse(GOOD, FILE)
    assert spec.name == "clicks"
    assert spec.checkpoint == "/somewhere/check"
    (source,) = spec.sources
    assert source.options == {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "a,b",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1000",
        "failOnDataLoss": "false",
    }
    assert source.watermark == Watermark("at", "30 seconds")
    assert source.decode == Decode("json", "page string, at timestamp")
    raw, counts = spec.sinks
    assert (raw.name, raw.path, raw.partition_by) == ("clicks", "/somewhere/lake/clicks", ("page",))
    assert (counts.kind, counts.topic, counts.mode) == ("topic", "out", "update")
    assert (spec.dead_letters, spec.dead_letter_options) == ("dead", {"exactlyOnce": "false"})
    assert spec.spark == {"spark.sql.shuffle.partitions": "4"}


def test_the_names_of_options_are_read_in_any_case() -> None:
    text = GOOD.replace("maxOffsetsPerTrigger = 1000", 'startingoffsets = "latest"')
    (source,) = parse(text, FILE).sources
    assert source_options(source.options, streaming=True).start.kind is Kind.LATEST


@pytest.mark.parametrize("name", ["kafka.bootstrap.servers", "Kafka.Bootstrap.Servers"])
def test_the_servers_of_a_source_may_be_one_of_its_options(name: str) -> None:
    text = GOOD.replace("maxOffsetsPerTrigger = 1000", f'"{name}" = "i:2"')
    for with_default in (text, text.replace('bootstrap = "h:1"', "")):
        (source,) = parse(with_default, FILE).sources
        assert source.bootstrap == "i:2"
        assert [one for one in source.options if one.lower() == name.lower()] == [
            "kafka.bootstrap.servers"
        ]


def test_an_address_with_a_scheme_is_not_a_path() -> None:
    assert parse(GOOD.replace('"check"', '"s3a://b/c"'), FILE).checkpoint == "s3a://b/c"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('checkpoint = "check"\n', "", "clicks.toml:1: checkpoint: is missing"),
        ('checkpoint = "check"', "checkpoint = 5", ":1: checkpoint: must be a text in quotes"),
        (
            'name = "clicks"',
            'nmae = "clicks"',
            ":5: source.nmae: unknown field; did you mean name?",
        ),
        (
            "maxOffsetsPerTrigger",
            "maxOffsetPerTrigger",
            ":4: source: unknown option .* did you mean",
        ),
        ('topics = ["a", "b"]', 'topics = "a"', r":6: source.topics: must be a list such as"),
        ('topics = ["a", "b"]', "", ":4: source: topics or a pattern must say what to read"),
        ('"30 seconds"', '"soon"', ':8: source.watermark.delay: a time such as "30 seconds"'),
        ('format = "json"', 'format = "xml"', ":10: source.decode.format: must be json, csv, avro"),
        ('schema = "page string, at timestamp"', "", ":9: source.decode: json needs a schema"),
        (
            "page string",
            "page strng",
            ":11: source.decode.schema: column page: there is no type strng; did you mean string?",
        ),
        ('format = "json"', 'format = "raw"', ":11: source.decode.schema: means nothing to raw"),
        (
            'format = "json"',
            'format = "json"\nconfluent = "yes"',
            ":11: source.decode.confluent: must be true or false",
        ),
        (
            'format = "json"',
            'format = "json"\nconfluent = true',
            ":11: source.decode.confluent: means nothing to json, only to avro",
        ),
        (
            'format = "json"',
            'format = "csv"\nschema_file = "x.avsc"',
            ":11: source.decode.schema_file: means nothing to csv, only to avro",
        ),
        (
            'format = "json"\nschema = "page string, at timestamp"',
            'format = "raw"\noptions = { mode = "FAILFAST" }',
            ":11: source.decode.options: means nothing to raw, only to json",
        ),
        (
            'path = "lake/clicks"',
            'path = "lake/clicks"\noptions = { compression = "zstd" }',
            ":24: sink.options: means nothing to table, only to topic",
        ),
        (
            'topic = "out"',
            'topic = "out"\npartition_by = ["page"]',
            ":30: sink.partition_by: means nothing to topic, only to table",
        ),
        (
            "options = {",
            'bootstrap = "i:2"\noptions = { "Kafka.Bootstrap.Servers" = "j:3",',
            ":8: source.options.Kafka.Bootstrap.Servers: there is a bootstrap beside it",
        ),
        ('column = "at", ', "", ":8: source.watermark.column: is missing"),
        ("{ column", "{ colum", ":8: source.watermark.colum: unknown field; did you mean column"),
        (
            "failOnDataLoss = false",
            "failOnDataLoss = [1]",
            ":7: source.options.failOnDataLoss: can",
        ),
        ('path = "lake/clicks"', "path = ' '", ":23: sink.path: is empty"),
        ('topic = "dead"', "topic = 1", ":33: dead_letters.topic: must be a text in quotes"),
        ('"spark.sql.shuffle.partitions" = 4', '"a" = []', ":37: spark.a: cannot be"),
        (
            'format = "json"',
            'format = "avro"',
            ":9: source.decode: avro is decoded by the schema of",
        ),
        ('name = "counts"', 'name = "clicks"', ":14: step.name: there is a view clicks already"),
        ('name = "counts"', 'name = "Clicks"', ":14: step.name: there is a view clicks already"),
        ('name = "counts"', 'name = "a b"', ":14: step.name: letters, digits and _"),
        ('from = "counts"', 'from = "count"', ":27: sink.from: there is no view count; there are"),
        ('kind = "topic"', 'kind = "kafka"', ":28: sink.kind: must be table, topic, console"),
        ('topic = "out"\n', "", ":26: sink.topic: is missing"),
        ('mode = "update"', 'mode = "upsert"', ":30: sink.mode: must be append, update"),
        ('from = "counts"', 'from = "counts"\nname = "clicks"', ":28: sink.name: another sink"),
        ("[dead_letters]", "[dead_leters]", ":32: dead_leters: unknown field; did you mean dead_l"),
        (
            "partition_by",
            "mode = 'update'\npartition_by",
            ":24: sink.mode: update needs merge_on",
        ),
        ('kind = "table"', 'kind = "parquet"', r':22: sink.kind: .* table: kind = "table"'),
        ("partition_by", 'merge_on = ["page"]\npartition_by', ":24: sink.merge_on: is for mode"),
        ("partition_by", 'history = "long"\npartition_by', ':24: sink.history: .*"7 days"'),
        ("partition_by", 'new_columns = "yes"\npartition_by', ":24: sink.new_columns: must be ref"),
        ("partition_by", "compact = { evry = 1 }\npartition_by", "sink.compact.evry: .* every?"),
        ("partition_by", "compact = { every = -1 }\npartition_by", ":24: .*a number of 0 or more"),
        (
            "partition_by",
            'properties = { "delta.enableDeletionVectors" = true }\npartition_by',
            ":24: sink.properties.delta.enableDeletionVectors: is not supported",
        ),
        ('path = "lake/clicks"', 'path = "gs://b/c"', ":23: sink.path: .*local directory or s3"),
        (
            '"spark.sql.shuffle.partitions" = 4',
            '"spark.sql.parquet.outputTimestampType" = "INT96"',
            ":37: spark.*: a table's times are TIMESTAMP_MICROS",
        ),
        ('bootstrap = "h:1"', "", "kafka.bootstrap.servers must be given"),
        ('bootstrap = "h:1"', 'bootstrap = "h:1"\ntrigger = "now"', ":3: trigger: .*available-now"),
        (
            '"spark.sql.shuffle.partitions" = 4',
            "spark.sql.shuffle.partitions = 4",
            ":36: spark.spark: is a table; a name with dots is written in quotes",
        ),
        ("[[step]]", "[step]", "step: must be written as"),
        ("[[source]]", "[[source]", "clicks.toml: .*line 4"),
    ],
)
def test_what_is_wrong_and_where(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(SpecError, match=message):
        parse(GOOD.replace(old, new, 1), FILE)


STATIC = """
[[source]]
name = "pages"
kind = "table"
path = "lake/pages"
static = true

[[source]]
name = "people"
kind = "csv"
path = "people.csv"
schema = "user string, country string"
options = { header = true }
"""


def test_what_a_stream_is_joined_with() -> None:
    _, pages, people = parse(GOOD.replace("[[step]]", f"{STATIC}\n[[step]]"), FILE).sources
    assert (pages.kind, pages.path, pages.static) == ("table", "/somewhere/lake/pages", True)
    assert (people.kind, people.static, people.options) == ("csv", True, {"header": "true"})
    for old, new, message in (
        ('schema = "user string, country string"', "", "source: csv needs a schema"),
        ("user string", "user strng", "source.schema: column user: there is no type strng"),
        ('path = "people.csv"', "", "source.path: is missing"),
        ("static = true", 'topics = ["a"]', "source.topics: means nothing to table, only to topic"),
        (
            "static = true",
            "options = { maxVersionPerTrigger = 1 }",
            "source.options: .*did you mean maxVersionsPerT",
        ),
        (
            "static = true",
            "options = { maxVersionsPerTrigger = 0 }",
            "maxVersionsPerTrigger must be a number of 1 or more, got '0'",
        ),
        (
            "static = true",
            'options = { startingVersion = "soon" }',
            "startingVersion must be a number of 0 or more, got 'soon'",
        ),
        (
            "static = true",
            "static = true\noptions = { startingVersion = 3 }",
            "unknown option startingversion",
        ),
        ('path = "lake/pages"', 'path = "gs://b/c"', "source.path: .*local directory or s3"),
    ):
        with pytest.raises(SpecError, match=message):
            parse(GOOD.replace("[[step]]", f"{STATIC.replace(old, new)}\n[[step]]"), FILE)
    only = GOOD[GOOD.index("[[step]]") :].replace("FROM clicks", "FROM pages")
    with pytest.raises(SpecError, match="one source at least must be a stream"):
        parse(
            f'checkpoint = "c"\n{STATIC}{only}'.replace('from = "clicks"', 'from = "pages"'), FILE
        )


def test_nothing_to_read_or_to_write() -> None:
    with pytest.raises(SpecError, match=r"a \[\[source\]\] is needed"):
        parse('checkpoint = "c"', FILE)
    with pytest.raises(SpecError, match=r"a \[\[sink\]\] is needed"):
        parse(GOOD[: GOOD.index("[[sink]]")], FILE)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nothing\.toml: No such file"):
        load(tmp_path / "nothing.toml")


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(b'name = "\xff"')
    with pytest.raises(SpecError, match=r"bad\.toml: byte 8 is not UTF-8"):
        load(file)


AVRO = GOOD.replace(
    'format = "json"\nschema = "page string, at timestamp"',
    'format = "avro"\nschema_file = "x.avsc"',
)


def test_a_schema_file_that_is_not_there() -> None:
    with pytest.raises(SpecError, match=r":11: source\.decode\.schema_file: there is no file"):
        parse(AVRO, FILE)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (b'{"type": "record", "name": "R", "fields": [{"name": "x"}]}', "this has no type that"),
        (b"\xff", "can't decode byte 0xff"),
    ],
)
def test_a_schema_file_that_is_none(tmp_path: Path, schema: bytes, message: str) -> None:
    (tmp_path / "x.avsc").write_bytes(schema)
    with pytest.raises(SpecError, match=rf":11: source\.decode\.schema_file: .*{message}"):
        parse(AVRO, tmp_path / "clicks.toml")
