"""Columns of strings in Arrow batches that workers read: mostly dictionaries, whose few values are looked at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["decode_dictionaries", "dictionary_codes"]

Ints = npt.NDArray[np.int64]


def dictionary_codes(column: pa.Array | pa.ChunkedArray) -> tuple[Ints, list[str | None]]:
    """A column of strings as indices into its values; the last value stands for null."""
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks()
    if not isinstance(column, pa.DictionaryArray):
        column = column.dictionary_encode()
    values = [*column.dictionary.to_pylist(), None]
    indices = column.indices.fill_null(len(values) - 1) if column.indices.null_count else column.indices
    return indices.to_numpy(zero_copy_only=False).astype(np.int64), values


def decode_dictionaries(batch: pa.RecordBatch | pa.Table) -> pa.Table:
    """The same rows without dictionaries, which Spark does not take."""
    columns = {
        name: column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    return pa.table(columns)
