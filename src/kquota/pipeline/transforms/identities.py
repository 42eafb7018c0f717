"""Who rows are about, as numbers: what is the same for all rows of a client and key is looked up once per batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["IDENTITY", "Identity", "identities", "numbers_of", "plain_strings"]

IDENTITY: Final = ("cluster", "user", "client_id", "ip", "key")
"""What a limit is resolved for; null is a value like any other here."""

Identity = tuple[str | None, ...]
Ints = npt.NDArray[np.int64]

_LARGEST: Final = 2**62


def identities(clients: DataFrame) -> DataFrame:
    """What limits are resolved for, of clients: IDENTITY, and where there is one the `grain`: what is known."""
    return clients.select(*IDENTITY, *(name for name in ("grain",) if name in clients.columns))


def numbers_of(batch: pa.RecordBatch | pa.Table, numbers: Mapping[Identity, int]) -> Ints:
    """For each row the number of its identity, -1 where `numbers` has none."""
    columns = [_encoded(batch.column(name)) for name in IDENTITY]
    codes = np.zeros(batch.num_rows, np.int64)
    size = 1
    for indices, values in columns:
        if size * len(values) > _LARGEST:
            known, codes = np.unique(codes, return_inverse=True)
            size = len(known)
        codes = codes * len(values) + indices
        size *= len(values)
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    identities = zip(
        *([values[index] for index in indices[first].tolist()] for indices, values in columns), strict=True
    )
    return np.array([numbers.get(identity, -1) for identity in identities], np.int64)[inverse]


def _encoded(column: pa.Array | pa.ChunkedArray) -> tuple[Ints, list[str | None]]:
    """A column of strings as indices into its values; the last value stands for null."""
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks()
    if not isinstance(column, pa.DictionaryArray):
        column = column.dictionary_encode()
    values = [*column.dictionary.to_pylist(), None]
    indices = column.indices.fill_null(len(values) - 1)
    return indices.to_numpy(zero_copy_only=False).astype(np.int64), values


def plain_strings(batch: pa.RecordBatch | pa.Table) -> pa.Table:
    """The same rows without dictionaries, which Spark does not take."""
    columns = {
        name: column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    return pa.table(columns)
