"""Spark with a secure cluster: TLS and SCRAM from a file, and no secret in anything Spark keeps."""

from pathlib import Path
from typing import Any

import pytest

from odradek import Cluster

pytestmark = pytest.mark.spark


def test_rows_go_round_and_no_secret_is_in_what_spark_keeps(
    spark: Any, sessions: Any, tmp_path: Path
) -> None:
    with Cluster(brokers=1, secure=True) as cluster:
        files = cluster.security_files
        assert files is not None
        password = files.administrator()["sasl.password"]
        options = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "kafka.odradek.config.file": str(files.client_file),
        }
        rows = spark.createDataFrame([("a",), ("b",)], "value string")
        rows.write.format("odradek").options(**options, topic="t").mode("append").save()
        reader = spark.read.format("odradek").options(**options, subscribe="t")
        read = reader.load().selectExpr("cast(value as string)")
        assert sorted(row.value for row in read.collect()) == ["a", "b"]
        stream = spark.readStream.format("odradek").options(**options, subscribe="t")
        stream = stream.option("startingOffsets", "earliest").load().select("value")
        sink = stream.writeStream.format("odradek").options(**options, topic="copied")
        sink = sink.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        query = sink.start()
        query.awaitTermination()
        assert query.exception() is None
        copied = spark.read.format("odradek").options(**options, subscribe="copied").load()
        assert sorted(bytes(row.value) for row in copied.collect()) == [b"a", b"b"]
        wrong = spark.read.format("odradek").options(**options, subscribe="t")
        wrong = wrong.option("kafka.sasl.mechanism", "PLAIN")
        with pytest.raises(Exception, match="sasl") as refused:
            wrong.load().collect()
    kept = {
        "plan": read._jdf.queryExecution().toString(),
        "plan of the stream": stream._jdf.queryExecution().toString(),
        "progress": str(query.recentProgress),
        "checkpoint": text_below(tmp_path),
        "error": str(refused.value),
        "event log": text_below(sessions.event_logs),
    }
    assert "SparkListenerJobEnd" in kept["event log"], "there is one"
    assert '{"t":' in kept["checkpoint"].replace(" ", ""), "of the offsets"
    for where, text in kept.items():
        assert password not in text, where


def text_below(directory: Path) -> str:
    return "".join(
        path.read_text(errors="replace") for path in sorted(directory.rglob("*")) if path.is_file()
    )
