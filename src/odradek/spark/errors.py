"""What goes wrong in a source or sink, said so that the user sees the sentence first.

Spark shows the traceback of a Python worker, forty lines of its own machinery around one of ours.
docs/spec/spark-kafka-format.md section 7 (b): an environment variable makes it show the exception
alone. Only errors whose text is complete go out that way; a bug keeps its traceback.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from odradek.wire.errors import KafkaError

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"


class OptionError(ValueError):
    """An option that is missing, unknown, malformed or at odds with another."""


class NoBroker(OSError):
    """No broker has ever answered at the address that was given; names it."""


class DataLoss(Exception):
    """Records that should be read are not there (any more). Carries Spark's condition."""

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(
            f"KAFKA_DATA_LOSS.{condition}: {text}. SQLSTATE: 22000. Set failOnDataLoss to false "
            "to continue with the remaining records."
        )


class MalformedRecord(Exception):
    """A batch that cannot be read; says where."""


class BadRow(ValueError):
    """A row that cannot become a record."""


class NotExactlyOnce(Exception):
    """Rows that cannot be written exactly once, as was asked for; says why."""


class TableError(Exception):
    """What is wrong with a table, or with what was asked of it; says what to do."""


COMPLETE = (
    OptionError,
    DataLoss,
    MalformedRecord,
    BadRow,
    NotExactlyOnce,
    TableError,
    KafkaError,
    OSError,
)


@contextmanager
def plainly() -> Iterator[None]:
    """An error with a complete text that leaves this block is shown without its traceback."""
    try:
        yield
    except COMPLETE:
        # The worker ends with the error, so no other traceback is hidden.
        os.environ[HIDE_TRACEBACK] = "1"
        raise
