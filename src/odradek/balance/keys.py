"""Numbers for the keys of rows.

A day of windows has millions of rows and names few things. Rows that are grouped or looked up by
names pay for the text each time; here they pay once, and everything after is arithmetic on arrays.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["Keys", "number_keys"]

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Keys:
    """The distinct keys of a table's rows, numbered in the order in which they first appear."""

    of_row: Array
    count: int

    def and_by(self, column: pa.ChunkedArray) -> "Keys":
        """The keys with one more column."""
        found = _encoded(column)
        # At most the square of the number of rows: that fits.
        pairs = self.of_row * np.int64(found.count)
        pairs += found.of_row
        return _encoded(pa.chunked_array([pairs]))

    def sum(self, values: Array, where: Array) -> Array:
        """The sum for each key over the rows that `where` picks, exact; 0 for one without any."""
        totals = np.zeros(self.count, np.int64)
        np.add.at(totals, self.of_row[where], values[where])
        return totals

    def any(self, where: Array) -> Array:
        """Whether a key has any of the rows that `where` picks."""
        found = np.zeros(self.count, bool)
        found[self.of_row[where]] = True
        return found

    def last(self, order: Array) -> Array:
        """The row of each key that comes last in an order of all rows. In the reverse of an order
        that is the first."""
        found = np.zeros(self.count, np.int64)
        # Where an index repeats, numpy leaves what was assigned last.
        found[self.of_row[order]] = order
        return found


def number_keys(table: pa.Table, first: str, *others: str) -> Keys:
    """Number the rows' keys, which are the values of the named columns; none may be null."""
    keys = _encoded(table[first])
    for name in others:
        keys = keys.and_by(table[name])
    return keys


def _encoded(column: pa.ChunkedArray) -> Keys:
    chunks = column.dictionary_encode().chunks
    if not chunks:
        return Keys(np.zeros(0, np.int32), 0)
    # Arrow gives all chunks one dictionary.
    numbers = [chunk.indices.to_numpy() for chunk in chunks]
    return Keys(np.concatenate(numbers) if numbers[1:] else numbers[0], len(chunks[-1].dictionary))
