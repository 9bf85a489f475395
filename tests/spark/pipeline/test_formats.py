"""Every way to decode and every sink in one pipeline, and what could not be decoded."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.spark.pipeline.files import SPARK, records, rows

from odradek.spark.pipeline.runner import Run, as_records
from odradek.spark.pipeline.spec import SpecError, parse

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "number", "type": "int"}, {"name": "name", "type": "string"}],
}
FILE = """
checkpoint = "checkpoint"
bootstrap = "{bootstrap}"
trigger = "available-now"

[[source]]
name = "prices"
topics = ["{prices}"]
[source.decode]
format = "csv"
schema = "number int, name string, price double"

[[source]]
name = "orders"
topics = ["{orders}"]
[source.decode]
format = "avro"
schema_file = "order.avsc"

[[source]]
name = "plain"
topics = ["{plain}"]

[[source]]
name = "clicks"
topics = ["{clicks}"]
options = {{ maxOffsetsPerTrigger = 3 }}
watermark = {{ column = "at", delay = "1 minute" }}
[source.decode]
format = "json"
schema = "at timestamp"

[[step]]
name = "texts"
sql = "SELECT cast(value AS string) AS text, offset FROM plain"

[[step]]
name = "minutes"
sql = '''
SELECT window(at, '1 minute').start AS minute, count(*) AS clicks
FROM clicks GROUP BY window(at, '1 minute')
'''

[[sink]]
from = "prices"
kind = "table"
path = "lake/prices"
partition_by = ["name"]

[[sink]]
from = "orders"
kind = "topic"
topic = "{out}"
key = "number"

[[sink]]
from = "texts"
kind = "console"

[[sink]]
from = "minutes"
kind = "table"
path = "lake/minutes"

[dead_letters]
topic = "{dead}"
"""


def at(minute: int) -> bytes:
    return b'{"at": "2026-01-01T00:%02d:00Z"}' % minute


@dataclass
class Landed:
    home: Path
    topics: dict[str, str]
    printed: str


@pytest.fixture(scope="module")
def landed(cluster: Any, sessions: Any, tmp_path_factory: pytest.TempPathFactory) -> Landed:
    home = tmp_path_factory.mktemp("formats")
    names = ("prices", "orders", "plain", "clicks", "out", "dead")
    topics = {name: cluster.create() for name in names}
    cluster.produce(topics["prices"], [b"1,a,2.5", b"2,b,x", b'3,"a, or b",', b"4,c"])
    # An int of 5 and a text of 2; the same with a byte missing; and one too many.
    avro = b"\x0a\x04hi"
    cluster.produce(topics["orders"], [avro, avro[:-1], avro + b"!", None], keys=[b"k"] * 4)
    cluster.produce(topics["plain"], [b"any", None])
    # In batches of three; a minute that the first batch closed is closed to the third.
    cluster.produce(topics["clicks"], list(map(at, [0, 0, 10, 20, 20, 20, 0, 30])))
    (home / "order.avsc").write_text(json.dumps(SCHEMA))
    text = FILE.format(bootstrap=cluster.bootstrap, **topics)
    capture = pytest.MonkeyPatch()
    printed: list[str] = []
    with capture.context() as patch:
        patch.setattr(
            "builtins.print", lambda *words, **_: printed.append(" ".join(map(str, words)))
        )
        run = Run(parse(text + SPARK, home / "formats.toml"), sessions.on("local[2]"))
        run.start()
        run.wait()
    return Landed(home, topics, "\n".join(printed))


def test_csv_in_a_table_with_partitions(landed: Landed) -> None:
    found = {row["number"]: row for row in rows(landed.home / "lake" / "prices")}
    assert {number: (row["name"], row["price"]) for number, row in found.items()} == {
        1: ("a", 2.5),
        3: ("a, or b", None),
    }
    assert (landed.home / "lake" / "prices" / "name=a").is_dir()
    assert found[3]["kafka"]["offset"] == 2
    assert found[3]["kafka"]["topic"] == landed.topics["prices"]


def test_avro_in_a_topic(landed: Landed, cluster: Any) -> None:
    (record,) = records(cluster, landed.topics["out"])
    assert record.key == b"5"
    value = json.loads(record.value or b"")
    assert (value["number"], value["name"]) == (5, "hi")


def test_rows_without_a_value_are_json_in_a_topic(spark: Any) -> None:
    rows = spark.sql(
        "SELECT 7 AS number, cast(null AS string) AS gone, X'00FF' AS bytes, "
        "timestamp'2026-01-01 00:00:00.5Z' AS at, named_struct('x', 1.5D) AS inner"
    )
    (record,) = as_records(rows, "number").collect()
    value = json.loads(record.value)
    at = datetime.fromisoformat(value.pop("at"))
    assert at == datetime(2026, 1, 1, 0, 0, 0, 500_000, UTC)
    assert list(value.items()) == [("number", 7), ("bytes", "AP8="), ("inner", {"x": 1.5})]
    assert record.key == "7"
    assert as_records(rows, "").columns == ["value"]


def test_rows_with_a_value_go_to_a_topic_as_they_are(spark: Any) -> None:
    rows = spark.sql("SELECT X'FF' AS value, 'k' AS key, 3 AS partition")
    assert as_records(rows, "").collect() == rows.collect()


def test_raw_records_on_the_console(landed: Landed) -> None:
    assert "texts, batch 0: 2 rows" in landed.printed
    assert "|any |0     |" in landed.printed
    assert "|NULL|1     |" in landed.printed


def test_windows_are_landed_when_their_watermark_has_passed(landed: Landed) -> None:
    found = {row["minute"].minute: row["clicks"] for row in rows(landed.home / "lake" / "minutes")}
    # The late one is not counted, and the last minute is still open.
    assert found == {0: 2, 10: 1, 20: 3}


def test_dead_letters_have_their_reason_position_and_bytes(landed: Landed, cluster: Any) -> None:
    found = {}
    for letter in records(cluster, landed.topics["dead"]):
        headers = {name.removeprefix("odradek."): value for name, value in letter.headers}
        found[headers["topic"], int(headers["offset"] or b"")] = (letter, headers)
    prices, orders = landed.topics["prices"].encode(), landed.topics["orders"].encode()
    said = {place: headers["reason"] for place, (_, headers) in found.items()}
    assert said == {
        (prices, 1): b"column price is 'x', not double",
        (prices, 3): b"2 columns, and the schema has 3",
        (orders, 1): b"not Avro of the schema: field name: 2 bytes are wanted at byte 2, "
        b"and it has 3",
        (orders, 2): b"not Avro of the schema: 1 bytes are left over after the record",
        (orders, 3): b"not Avro of the schema: the record has no value",
    }
    letter, headers = found[orders, 1]
    assert (letter.key, letter.value) == (b"k", b"\x0a\x04h")
    assert (headers["partition"], headers["pipeline"]) == (b"0", b"formats")
    assert headers["timestamp"]
    assert found[orders, 3][0].value is None
    assert found[prices, 1][0].value == b"2,b,x"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("FROM plain", "FROM plane", "step texts: .*TABLE_OR_VIEW_NOT_FOUND.*plane"),
        ("cast(value AS string)", "cast(value AS strng)", "step texts: .*UNSUPPORTED_DATATYPE"),
        ('["name"]', '["nam"]', "sink prices: partition_by: there is no column nam; there are num"),
        ('key = "number"', 'key = "id"', "sink orders: key: there is no column id; there are num"),
    ],
)
def test_what_only_spark_can_tell(
    spark: Any, tmp_path: Path, old: str, new: str, message: str
) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(SCHEMA))
    names = {name: name for name in ("prices", "orders", "plain", "clicks", "out", "dead")}
    text = FILE.format(bootstrap="127.0.0.1:1", **names)
    assert old in text
    run = Run(parse(text.replace(old, new, 1), tmp_path / "formats.toml"), spark)
    with pytest.raises(SpecError, match=f"^formats: {message}"):
        run.start()
    assert not run.queries
