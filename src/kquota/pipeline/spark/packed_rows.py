"""Rows of numbers packed for a shuffle: each column in as few bytes as its values take, in none where all are one.

Nothing is lost. What a shuffle costs, on the JVM's side most of all, is a matter of bytes.
"""

from __future__ import annotations

import pickle
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["PackedRows", "unpacked"]

Rows = npt.NDArray[np.void]

_SECOND_MS: Final = 1_000
_WHOLE: Final = 2.0**32
_WIDEST: Final = 2**62
_LENGTH_BYTES: Final = 4


class _Column(NamedTuple):
    """How a column is packed: as `kind`, of what is left of it after subtracting `base` and dividing by `step`."""

    kind: str | None
    """None where each value is the base."""
    base: Any
    step: int


class PackedRows:
    """Packed rows, of which parts are taken as bytes."""

    def __init__(self, rows: Rows) -> None:
        """Pack structured rows."""
        names = rows.dtype.names or ()
        # Looked at again and again, what lies scattered among other columns would come from memory each time.
        values = {name: np.ascontiguousarray(rows[name]) for name in names}
        columns = {name: _packing(values[name]) for name in names}
        kept = [(name, column.kind) for name, column in columns.items() if column.kind is not None]
        # A row of nothing would have no length.
        self._rows = np.zeros(len(rows), np.dtype(kept or [("", "u1")]))
        for name, _ in kept:
            self._rows[name] = _packed(values[name], columns[name])
        layout = pickle.dumps((rows.dtype, columns, self._rows.dtype))
        self._tail = layout + len(layout).to_bytes(_LENGTH_BYTES, "little")

    def parts(self, order: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]) -> list[bytes]:
        """The rows in an order, parted before each of `starts` but the first: what :func:`unpacked` takes."""
        ordered = self._rows.take(order)  # several times faster than rows[order]
        return [part.tobytes() + self._tail for part in np.split(ordered, starts[1:])] if len(starts) else []


def unpacked(part: Any) -> Rows:
    """The rows of a part, a buffer.

    Its layout is unpickled, and pickles can run code. Parts are made by workers of the same Spark job and come through
    its shuffle: who can write there is the user that the job runs as (``spark.local.dir``) and, without
    ``spark.authenticate``, whoever reaches the executors' ports. Spark itself runs pickled code from both.
    """
    view = memoryview(part)
    length = int.from_bytes(view[-_LENGTH_BYTES:], "little")
    dtype, columns, kept = pickle.loads(view[-_LENGTH_BYTES - length : -_LENGTH_BYTES])  # noqa: S301 (by our workers)
    packed = np.frombuffer(view[: -_LENGTH_BYTES - length], kept)
    rows = np.empty(len(packed), dtype)
    for name, (kind, base, step) in columns.items():
        if kind is None:
            rows[name] = base
        elif step:
            values = packed[name].astype(np.int64)
            values *= step
            values += base
            rows[name] = values
        else:
            rows[name] = packed[name]
    return rows


def _packing(values: npt.NDArray[Any]) -> _Column:
    if not len(values):
        return _Column(None, values.dtype.type(0), 0)
    lowest, highest = values.min(), values.max()
    if lowest == highest and not (lowest == 0 and values.dtype.kind == "f"):  # of which there are two
        return _Column(None, lowest, 0)
    if values.dtype.kind == "f":
        # Amounts are mostly bytes and requests, which are whole.
        is_whole = (
            lowest >= 0 and highest < _WHOLE and not np.signbit(values).any() and (values == np.rint(values)).all()
        )
        return _Column("u4" if is_whole else values.dtype.str, 0, 0)
    if values.dtype.kind not in "iu":
        return _Column(values.dtype.str, 0, 0)
    lowest, highest = int(lowest), int(highest)
    if highest - lowest >= _WIDEST:
        return _Column(values.dtype.str, 0, 0)
    are_seconds = highest - lowest >= _SECOND_MS and not ((values.astype(np.int64) - lowest) % _SECOND_MS).any()
    step = _SECOND_MS if are_seconds else 1
    return _Column(np.min_scalar_type((highest - lowest) // step).str, lowest, step)


def _packed(values: npt.NDArray[Any], column: _Column) -> npt.NDArray[Any]:
    if not column.step:
        return values
    left: npt.NDArray[Any] = values.astype(np.int64) - column.base
    return left // column.step if column.step > 1 else left
