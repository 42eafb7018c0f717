"""Limits that changed while the log ran: which of them was in force at the time of a row.

Resolved clients have the columns VALID_FROM_MS and VALID_TO_MS only where limits changed. Then there is one row for
each client, key and time span in which their limit stayed the same. The spans of a client and key follow each other
without a gap:

    client  key   limit  valid_from_ms  valid_to_ms  is_latest
    alice   P        10           null         5000      false
    alice   P        20           5000         null       true
    bob     P        15           null         null       true

Times at which any limit changed cut the recording into periods: here number 0 up to 5000 ms, and number 1 from then on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from kquota.pipeline.limits.identities import Identity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "IS_LATEST",
    "VALIDITY",
    "VALID_FROM_MS",
    "VALID_TO_MS",
    "LimitPeriods",
    "MeterTimelines",
    "has_periods",
    "latest_limits",
]

VALID_FROM_MS: Final = "valid_from_ms"
"""Column with the start of a time span; null for one that began before the recording did."""

VALID_TO_MS: Final = "valid_to_ms"
"""Column with its end; null for one that ended after the recording did."""

IS_LATEST: Final = "is_latest"
"""Column: whether this is the last limit that the client had, which is the one to show where there is room for one."""

VALIDITY: Final = (VALID_FROM_MS, VALID_TO_MS)

Ints = npt.NDArray[np.int64]


def has_periods(clients: DataFrame) -> bool:
    """Whether limits changed, so that resolved clients have a row for each time span."""
    return VALID_FROM_MS in clients.columns


def latest_limits(clients: DataFrame) -> DataFrame:
    """Of resolved clients one row for each client and key, with the last limit that was in force for it."""
    return clients.where(IS_LATEST) if has_periods(clients) else clients


class MeterTimelines(NamedTuple):
    """The meters that identities count on, period by period. Identities with the same meters share a track."""

    numbers: dict[Identity, int]
    """By identity the row of its track."""
    of_period: Ints
    """By track and period a number, -1 for none; the last row, of no identity, is -1 throughout."""


@dataclass(frozen=True, slots=True)
class LimitPeriods:
    """The periods in which no limit changed, numbered from 0."""

    starts_ms: Ints
    """Where all but the first begin."""

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> Self:
        """The periods between all times at which rows of resolved clients begin or end."""
        if not rows or VALID_FROM_MS not in rows[0]:
            return cls(np.empty(0, np.int64))
        starts = {row[VALID_FROM_MS] for row in rows} | {row[VALID_TO_MS] for row in rows}
        return cls(np.array(sorted(start for start in starts if start is not None), np.int64))

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.starts_ms) + 1

    def at(self, at_ms: Ints) -> Ints:
        """The number of the period that each time is in. A limit is in force from the millisecond it was set in."""
        return np.searchsorted(self.starts_ms, at_ms, side="right")

    def of_row(self, row: Mapping[str, Any]) -> slice:
        """The periods that a row of resolved clients covers."""
        return slice(self._starting(row.get(VALID_FROM_MS), 0), self._starting(row.get(VALID_TO_MS), self.count))

    def fill(self, of_period: list[int], row: Mapping[str, Any], number: int) -> None:
        """Set a number for the periods that a row of resolved clients covers."""
        if self.count == 1:
            of_period[0] = number
        else:
            span = self.of_row(row)
            of_period[span] = [number] * (span.stop - span.start)

    def _starting(self, at_ms: int | None, otherwise: int) -> int:
        return otherwise if at_ms is None else int(np.searchsorted(self.starts_ms, at_ms, side="right"))

    def timelines(
        self, identities: Sequence[Identity], rows: Sequence[Mapping[str, Any]], numbers: Sequence[int]
    ) -> MeterTimelines:
        """The meters that identities count on, from rows of resolved clients and the number of the meter of each."""
        none = np.full((1, self.count), -1, np.int64)
        if self.count == 1:
            return MeterTimelines(
                dict(zip(identities, range(len(rows)), strict=True)),
                np.concatenate([np.array(numbers, np.int64).reshape(-1, 1), none]),
            )
        by_identity: dict[Identity, list[int]] = {}
        for identity, row, number in zip(identities, rows, numbers, strict=True):
            self.fill(by_identity.setdefault(identity, [-1] * self.count), row, number)
        shared: dict[tuple[int, ...], int] = {}
        timelines = {
            identity: shared.setdefault(tuple(of_period), len(shared)) for identity, of_period in by_identity.items()
        }
        return MeterTimelines(
            timelines, np.concatenate([np.array(list(shared), np.int64).reshape(-1, self.count), none])
        )
