"""Why a value became a dead letter: whatever it is, there is a sentence."""

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from odradek.spark.pipeline.reasons import MISFIT, NO_VALUE, reason

SCHEMA = StructType([StructField("id", IntegerType()), StructField("name", StringType())])


@pytest.mark.parametrize(
    ("form", "value", "expected"),
    [
        ("json", None, NO_VALUE),
        ("json", b"\xff", "not UTF-8: byte 0 is 0xff"),
        ("json", b'{"id": "x"}', 'field id is "x", not int'),
        ("json", b"[" * 100_000, MISFIT),
        ("json", b'{"id": ' + b"[" * 1100 + b"]" * 1100 + b"}", MISFIT),
        ("csv", None, NO_VALUE),
        ("csv", b"1,2,3", "3 columns, and the schema has 2"),
        ("csv", b"one,two", "column id is 'one', not int"),
        ("csv", b"abc,one\ntwo,x", MISFIT),
        ("csv", b"abc\rx,y", MISFIT),
        ("csv", b"x" * 200_000 + b",1", MISFIT),
    ],
)
def test_every_value_has_its_sentence(form: str, value: bytes | None, expected: str) -> None:
    assert reason(form, value, SCHEMA) == expected
