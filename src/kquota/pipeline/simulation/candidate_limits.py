"""Meters with the limits that are to be tried on them, and who counts on which: under one set of quotas, or several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isnan
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kquota.pipeline.limits.identities import IDENTITY, METER, IdentityIds
from kquota.pipeline.spark.arrow import dictionary_codes
from kquota.quotas import CONTROLLER_MUTATION_RATE

__all__ = ["Candidate", "CandidateMeters", "QuotaColumns"]

_OF_CLIENT: Final = ("cluster", "key")

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class QuotaColumns(NamedTuple):
    """Columns of clients that say what they count on under some quotas, and up to what limit."""

    meter: str = "meter"
    limit: str = "limit"


class Candidate(NamedTuple):
    """A limit to simulate, infinite for none."""

    limit: float
    quota_sets: int
    """Which quotas set it, a bit for each: 1 for the first."""


@dataclass(frozen=True, slots=True)
class CandidateMeters:
    """Meters, numbered, and which identities count on them.

    One that other clients count on under other quotas is here once for each: its usage is not the same.
    """

    names: pa.Table
    """Columns METER: one row per meter."""
    are_mutations: Bools
    """Whether the controller counts them, by meter."""
    candidates: Sequence[Sequence[Candidate]]
    """By meter."""
    identities: IdentityIds
    counted: Sequence[Ints]
    """By identity a meter that it counts on, or -1, as is the last element, which is of no identity. More than one of
    these where some identity counts on several."""

    @classmethod
    def of(cls, rows: pa.Table, quotas: Sequence[QuotaColumns] = (QuotaColumns(),)) -> Self:
        """Those of clients.

        :param rows: one per cluster, user, client_id, ip and key, with the columns that `quotas` name; the meter
            is null where a client counts on none.
        """
        # Of clients that send at the same time one goes first: not that which happened to be in the first file.
        rows = rows.sort_by([(name, "ascending") for name in IDENTITY])
        code = _codes(rows, [columns.meter for columns in quotas])
        is_apart = np.zeros(code.max(initial=-1) + 2, np.bool_)
        for other in code[1:]:
            differs = other != code[0]
            is_apart[code[0][differs]] = is_apart[other[differs]] = True
        which = np.arange(len(quotas))[:, np.newaxis]
        version = np.where(code < 0, -1, code * len(quotas) + np.where(is_apart[code], which, 0))
        versions, first, number = np.unique(version, return_index=True, return_inverse=True)
        none = np.count_nonzero(versions < 0)
        number, first = number.reshape(code.shape) - none, first[none:]
        limits = np.full((len(first), len(quotas)), np.nan)
        for place, (own, columns) in enumerate(zip(number, quotas, strict=True)):
            limits[own[own >= 0], place] = pc.fill_null(rows[columns.limit], inf).to_numpy()[own >= 0]
        names = {name: rows[name].take(pa.array(first % max(rows.num_rows, 1))) for name in _OF_CLIENT}
        names["meter"] = _joined(rows, [columns.meter for columns in quotas]).take(pa.array(first))
        counted = []
        for place, own in enumerate(number):
            again = (own == number[:place]).any(axis=0)
            if not place or not again.all():
                counted.append(np.append(np.where(again, -1, own), -1))
        return cls(
            pa.table(names).select(METER),
            pc.equal(names["key"], CONTROLLER_MUTATION_RATE).to_numpy(),
            [_candidates(those) for those in limits.tolist()],
            IdentityIds(rows, np.arange(rows.num_rows)),
            counted,
        )


def _joined(rows: pa.Table, columns: Sequence[str]) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for name in columns for chunk in rows[name].chunks], pa.string())


def _codes(rows: pa.Table, meters: Sequence[str]) -> Ints:
    """By column with a meter, and row, a number for each cluster, key and meter; -1 where there is none."""
    meter = _joined(rows, meters).combine_chunks().dictionary_encode().indices
    code = pc.fill_null(meter, -1).to_numpy(zero_copy_only=False).astype(np.int64).reshape(len(meters), rows.num_rows)
    is_none = code < 0
    for name in _OF_CLIENT:
        place, values = dictionary_codes(rows[name])
        code = code * len(values) + place
    code[is_none] = -1
    codes: Ints = code
    return codes


def _candidates(limits: Sequence[float]) -> list[Candidate]:
    """From the limit under each of the quotas, no number where none of them has the meter."""
    quota_sets: dict[float, int] = {}
    for place, limit in enumerate(limits):
        if not isnan(limit):
            quota_sets[limit] = quota_sets.get(limit, 0) | 1 << place
    return [Candidate(*found) for found in quota_sets.items()]
