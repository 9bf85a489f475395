"""Schemas are checked without Spark, and as Spark does."""

import pytest

from odradek.spark.pipeline.ddl import DdlError, check_schema

GOOD = [
    "id int",
    "id INT, at Timestamp",
    "id: bigint, name: string NOT NULL",
    "price decimal(10,2), code char(3), note varchar(20), big dec(38)",
    "tags array<string>, more map<string, array<int>>",
    "who struct<name: string, born: struct<`the day` date>>, other struct<a int, b int>",
    "`a column, with` string COMMENT 'what, it is', next double",
    "took interval day to second, span interval",
    "time time, binary binary, none void",
]
BAD = [
    ("id itn", "column id: there is no type itn; did you mean int"),
    ("id", "column id: a type is expected at the end"),
    ("id int name string", "column id: a comma is expected before 'name'"),
    ("id int,", "the name of a column is expected at the end"),
    (", id int", "the name of a column is expected, not ','"),
    ("tags array<strnig>", "column tags: there is no type strnig; did you mean string?"),
    ("tags array<string", "column tags: > is expected"),
    ("more map<string>", "column more: , is expected before '>'"),
    ("who struct<name: strin>", "column who: column name: there is no type strin"),
    ("id int(5)", "column id: int takes no numbers"),
    ("id int, ID string", "column ID is there twice"),
]


@pytest.mark.parametrize("schema", GOOD)
def test_good_ones(schema: str) -> None:
    check_schema(schema)


@pytest.mark.parametrize(("schema", "message"), BAD)
def test_bad_ones(schema: str, message: str) -> None:
    with pytest.raises(DdlError) as caught:
        check_schema(schema)
    assert str(caught.value).startswith(message)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_spark_agrees(spark: object) -> None:
    from pyspark.errors import ParseException
    from pyspark.sql.types import StructType

    for schema in GOOD:
        StructType.fromDDL(schema)
    for schema, _ in BAD[:-1]:
        with pytest.raises(ParseException):
            StructType.fromDDL(schema)
