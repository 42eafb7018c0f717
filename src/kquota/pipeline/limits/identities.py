"""Who rows are about, as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kquota.pipeline.spark.arrow import dictionary_codes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["IDENTITY", "METER", "Identity", "IdentityIds", "identities"]

IDENTITY: Final = ("cluster", "user", "client_id", "ip", "key")
"""What a limit is resolved for; null is a value like any other here."""

METER: Final = ("cluster", "meter", "key")
"""What it is counted on, of a broker."""

Identity = tuple[str | None, ...]
Ints = npt.NDArray[np.int64]

_DENSE: Final = 2**22
"""The most codes that are looked up in an array by their value; where there are more, they are numbered again."""


def identities(clients: DataFrame) -> DataFrame:
    """What limits are resolved for, of clients: IDENTITY, and where there is one the `grain`: what is known."""
    return clients.select(*IDENTITY, *(name for name in ("grain",) if name in clients.columns))


class IdentityIds:
    """Identities, each with a number. Made once, it finds those of whole batches.

    Each column's values are numbered, and the numbers of a row's values make one code. Where codes become many, those
    that there are are numbered again.
    """

    def __init__(self, identities: pa.Table, numbers: Ints) -> None:
        """Take the identities: columns IDENTITY, no row twice, and the number of each."""
        codes = np.zeros(identities.num_rows, np.int64)
        size = 1
        self._columns: list[tuple[dict[str | None, int], Ints | None]] = []
        for name in IDENTITY:
            indices, values = dictionary_codes(identities.column(name))
            places: dict[str | None, int] = {}
            place = np.array([places.setdefault(value, len(places)) for value in values], np.int64)[indices]
            codes = codes * len(places) + place
            size *= len(places)
            known = None
            if size > _DENSE:
                known, codes = np.unique(codes, return_inverse=True)
                size = len(known)
            self._columns.append((places, known))
        self._numbers = np.full(size, -1, np.int64)
        self._numbers[codes] = numbers

    @classmethod
    def of_mapping(cls, numbers: Mapping[Identity, int]) -> Self:
        """Those of a mapping."""
        columns = zip(*numbers, strict=True) if numbers else [()] * len(IDENTITY)
        table = pa.table([pa.array(column, pa.string()) for column in columns], names=list(IDENTITY))
        return cls(table, np.fromiter(numbers.values(), np.int64, len(numbers)))

    def of(self, batch: pa.RecordBatch | pa.Table) -> Ints:
        """For each row the number of its identity, -1 where there is none."""
        codes = np.zeros(batch.num_rows, np.int64)
        is_known = np.ones(batch.num_rows, np.bool_)
        for name, (places, known) in zip(IDENTITY, self._columns, strict=True):
            indices, values = dictionary_codes(batch.column(name))
            place = np.array([places.get(value, -1) for value in values], np.int64)
            # One value for all rows is looked up once.
            is_one = len(values) == 1 or (len(values) == 2 and not batch.column(name).null_count)
            place = place[:1] if is_one else place[indices]
            if (place < 0).any():
                is_known &= place >= 0
                place = np.maximum(place, 0)
            codes = codes * len(places) + place
            if known is not None:
                found = np.minimum(np.searchsorted(known, codes), len(known) - 1)
                is_known &= known[found] == codes
                codes = found
        return np.where(is_known, self._numbers[codes], -1)
