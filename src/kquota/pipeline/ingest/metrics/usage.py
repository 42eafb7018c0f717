"""From readings of a broker's metrics to rows of the `usage` table.

A reading of a rate says what a meter used per second in the eleven seconds before it (Kafka's sampled rate). It is
used for the time back to the reading before: amount = rate x that time. So the cells of a meter lie end to end, and
no second is counted twice, however often and irregularly it was read. Of several origins of the same meter the one with
the most readings is used; others fill its gaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct, field

from kquota.pipeline.ingest.metrics.mapping import Reading
from kquota.pipeline.ingest.metrics.readings import READINGS_SCHEMA, Origin
from kquota.pipeline.ingest.request_log.cells import USAGE_SCHEMA
from kquota.pipeline.spark.shuffle import group_starts

__all__ = ["Conflict", "Intervals", "ReadingCounts", "usage_of_readings"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

GAP: Final = 1.5
"""A time between two readings that is longer than this many usual steps is a gap."""
AVERAGED_MS: Final = 30_000
"""For at least this long a throttle stays in the average that the broker reports (two samples of 30 s)."""
MAX_CELL_MS: Final = 86_400_000
"""Growth over a longer gap than this makes no cell: it is unknown when it was used."""
_NAMES: Final = ("broker_id", "key", "grain", "user", "client_id", "ip")
_CONFLICTS: Final = 3


class Conflict(Struct, frozen=True):
    """Two series of one meter with other labels that say that they are not of the same broker."""

    meter: str
    one: str
    other: str


class ReadingCounts(Struct, kw_only=True):
    """What became of readings. `meters` and, by source, `cells` count what is in the usage.

    `duplicates` came from another origin, too, or twice; `contradictions` twice with different values;
    `covered_by_log` lie in a time that a request log covers.
    """

    meters: int = 0
    cells: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0
    contradictions: int = 0
    covered_by_log: int = 0
    gaps: int = 0
    resets: int = 0
    steps: dict[int, int] = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals of time in order, which do not overlap: [starts, ends), in epoch milliseconds."""

    starts: Ints
    ends: Ints

    @classmethod
    def joined(cls, spans: Sequence[tuple[int, int]]) -> Intervals:
        """Of spans in any order, overlapping or not."""
        if not spans:
            return cls(np.empty(0, np.int64), np.empty(0, np.int64))
        found: list[tuple[int, int]] = []
        for start, end in sorted(spans):
            if found and start <= found[-1][1]:
                found[-1] = (found[-1][0], max(found[-1][1], end))
            else:
                found.append((start, end))
        starts, ends = zip(*found, strict=True)
        return cls(np.array(starts, np.int64), np.array(ends, np.int64))

    def touch(self, starts: Ints, ends: Ints) -> Bools:
        """Which of other intervals overlap any of these."""
        # The first of these that ends after another begins: it overlaps the other, or none does.
        at = np.searchsorted(self.ends, starts, side="right")
        inside = at < len(self.starts)
        touched = np.zeros(len(starts), np.bool_)
        touched[inside] = self.starts[at[inside]] < ends[inside]
        return touched


class _Cells(NamedTuple):
    """Cells of one meter and origin, in order; an amount that is not known is NaN."""

    starts: Ints
    ends: Ints
    amounts: Floats

    def where(self, chosen: Bools) -> _Cells:
        return _Cells(self.starts[chosen], self.ends[chosen], self.amounts[chosen])


class _Points(NamedTuple):
    """Readings of one series, in order of time, each time once."""

    times: Ints
    values: Floats


def usage_of_readings(
    readings: pa.Table, series: pa.Table, *, covered: Mapping[int, Intervals], default_step_ms: int, cluster: str
) -> tuple[pa.Table, ReadingCounts]:
    """Usage of whole meters.

    :param readings: ``READINGS_SCHEMA``, all readings of each meter that there is any of.
    :param series: ``SERIES_SCHEMA``, who these are.
    :param covered: by broker the times that its request log covers: nothing is taken from metrics there.
    :param default_step_ms: length in ms of the cell of a reading that is the only one of its series.
    :returns: rows of ``USAGE_SCHEMA``, and what became of the readings.
    """
    named = {row["meter"]: row for row in series.to_pylist()}
    origins = {row["origin"]: Origin.from_text(row["origin_text"]) for row in series.to_pylist()}
    columns = [readings[name].to_numpy() for name in READINGS_SCHEMA.names]
    order = np.lexsort((columns[3], columns[2], columns[1], columns[0]))
    meters, origin, kind, times, values = (column[order] for column in columns)
    counts = ReadingCounts()
    tables = []
    bounds = np.append(group_starts(meters), len(meters))
    for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        part = slice(start, end)
        names = named[int(meters[start])]
        found = dict(_series(origin[part], kind[part], times[part], values[part], counts))
        meter = _Meter(found, origins, counts, default_step_ms)
        if labels := meter.conflict():
            counts.conflicts = [*counts.conflicts, Conflict(_described(names), *labels)][:_CONFLICTS]
            continue
        table = meter.usage(names, covered.get(names["broker_id"]), cluster)
        if table.num_rows:
            counts.meters += 1
            tables.append(table)
    return (pa.concat_tables(tables) if tables else USAGE_SCHEMA.empty_table()), counts


def _described(names: Mapping[str, object]) -> str:
    tags = ((tag, names[column]) for tag, column in (("user", "user"), ("client-id", "client_id"), ("ip", "ip")))
    text = ",".join(f"{tag}={name}" for tag, name in tags if name)
    return f"{names['key']} of {text}"


def _series(
    origin: Ints, kind: npt.NDArray[np.int8], times: Ints, values: Floats, counts: ReadingCounts
) -> Iterator[tuple[tuple[int, Reading], _Points]]:
    """The series of one meter, by origin and kind of reading, each time once."""
    bounds = np.append(group_starts(origin, kind), len(times))
    for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        at_ms, value = times[start:end], values[start:end]
        is_new = np.ones(len(at_ms), np.bool_)
        is_new[1:] = at_ms[1:] != at_ms[:-1]
        again = np.flatnonzero(~is_new)
        counts.duplicates += len(again)
        differs = (value[again] != value[again - 1]) & ~(np.isnan(value[again]) & np.isnan(value[again - 1]))
        counts.contradictions += int(np.count_nonzero(differs))
        yield (int(origin[start]), Reading(int(kind[start]))), _Points(at_ms[is_new], value[is_new])


class _Meter:
    """The readings of one meter, from all origins."""

    def __init__(
        self,
        series: Mapping[tuple[int, Reading], _Points],
        origins: Mapping[int, Origin],
        counts: ReadingCounts,
        default_step_ms: int,
    ) -> None:
        self._series = series
        self._origins = origins
        self._counts = counts
        self._lone_ms = default_step_ms

    def conflict(self) -> tuple[str, str] | None:
        """Other labels of two series of one source and time that differ: they are not of one broker."""
        spans: dict[tuple[str, Reading, str], tuple[int, int]] = {}
        for (number, kind), points in self._series.items():
            if not len(points.times):
                continue
            first, last = int(points.times[0]), int(points.times[-1])
            one = self._origins[number]
            for (source, other_kind, others), (other_first, other_last) in spans.items():
                same = (source, other_kind) == (one.source, kind)
                if same and others != one.others and first <= other_last and other_first <= last:
                    return others, one.others
            known = spans.get((one.source, kind, one.others), (first, last))
            spans[one.source, kind, one.others] = min(known[0], first), max(known[1], last)
        return None

    def usage(self, names: Mapping[str, object], covered: Intervals | None, cluster: str) -> pa.Table:
        """Rows of ``USAGE_SCHEMA``."""
        parts = list(self._chosen(covered))
        throttles = self._merged(Reading.THROTTLE_TIME), self._merged(Reading.THROTTLE_TOTAL)
        tables = []
        for source, cells in parts:
            count = len(cells.starts)
            self._counts.cells[source] = self._counts.cells.get(source, 0) + count
            throttle = _throttles(cells, *throttles)
            columns = {
                "cluster": pa.repeat(cluster, count),
                "broker_id": pa.repeat(pa.scalar(names["broker_id"], pa.int32()), count),
                "cell_start_ms": pa.array(cells.starts),
                "cell_ms": pa.array((cells.ends - cells.starts).astype(np.int32)),
                "source": pa.repeat(source, count),
                **{name: pa.repeat(pa.scalar(names[name], pa.string()), count) for name in _NAMES[1:]},
                "amount": pa.array(cells.amounts, mask=np.isnan(cells.amounts)),
                "amount_max": pa.nulls(count, pa.float64()),
                "requests": pa.nulls(count, pa.int64()),
                "connections": pa.nulls(count, pa.int32()),
                **throttle,
                "unknown_amounts": pa.nulls(count, pa.int64()),
            }
            tables.append(pa.table({name: columns[name] for name in USAGE_SCHEMA.names}, schema=USAGE_SCHEMA))
        return pa.concat_tables(tables) if tables else USAGE_SCHEMA.empty_table()

    def _chosen(self, covered: Intervals | None) -> Iterator[tuple[str, _Cells]]:
        """Cells by source that overlap neither each other nor what the log covers."""
        usage = {key: points for key, points in self._series.items() if key[1] in (Reading.RATE, Reading.TOTAL)}
        # Without any usage, at least throttle times are reported.
        found = usage or {key: points for key, points in self._series.items() if key[1] == Reading.THROTTLE_TIME}
        ranked = sorted(found.items(), key=lambda item: (-len(item[1].times), self._origins[item[0][0]], item[0][1]))
        taken: list[tuple[int, int]] = []
        for (number, kind), points in ranked:
            cells = self._cells(points, kind)
            if taken:
                again = Intervals.joined(taken).touch(cells.starts, cells.ends)
                self._counts.duplicates += int(np.count_nonzero(again))
                cells = cells.where(~again)
            taken += zip(cells.starts.tolist(), cells.ends.tolist(), strict=True)
            if covered is not None:
                logged = covered.touch(cells.starts, cells.ends)
                self._counts.covered_by_log += int(np.count_nonzero(logged))
                cells = cells.where(~logged)
            if len(cells.starts):
                yield self._origins[number].source, cells

    def _cells(self, points: _Points, kind: Reading) -> _Cells:
        times, values = points
        between = np.diff(times)
        step_ms = int(np.median(between)) if len(between) else self._lone_ms
        steps = self._counts.steps
        steps[step_ms] = steps.get(step_ms, 0) + len(times)
        follows = between <= GAP * step_ms
        self._counts.gaps += int(np.count_nonzero(~follows))
        if kind is Reading.TOTAL:
            grown = np.diff(values)
            resets = grown < 0
            self._counts.resets += int(np.count_nonzero(resets))
            # What starts anew starts from 0.
            cells = _Cells(times[:-1], times[1:], np.where(resets, values[1:], grown))
            return cells.where(between <= MAX_CELL_MS)
        starts = np.concatenate([times[:1] - step_ms, np.where(follows, times[:-1], times[1:] - step_ms)])
        starts = np.maximum(starts, times - MAX_CELL_MS)
        amounts = values * (times - starts) / 1000 if kind is Reading.RATE else np.full(len(times), np.nan)
        return _Cells(starts, times, amounts)

    def _merged(self, kind: Reading) -> _Points:
        """Readings of all origins."""
        found = [points for (_, one), points in self._series.items() if one == kind]
        if not found:
            return _Points(np.empty(0, np.int64), np.empty(0))
        if kind is Reading.THROTTLE_TOTAL:
            return max(found, key=lambda points: len(points.times))
        times = np.concatenate([points.times for points in found])
        order = np.argsort(times, kind="stable")
        return _Points(times[order], np.concatenate([points.values for points in found])[order])


def _throttles(cells: _Cells, averages: _Points, totals: _Points) -> dict[str, pa.Array]:
    """Columns of throttles in cells: a lower bound of the longest, 0 for none at all, and the sum; null if unknown."""
    count = len(cells.starts)
    has_average, longest_ms = np.zeros(count, np.bool_), np.zeros(count)
    at, inside = _cell_of(cells, averages.times)
    has_average[at[inside]] = True
    np.maximum.at(longest_ms, at[inside], np.nan_to_num(averages.values[inside]))

    is_summed, total_ms = np.zeros(count, np.bool_), np.zeros(count)
    at, inside = _cell_of(cells, totals.times[1:])
    grown = np.diff(totals.values)
    is_summed[at[inside]] = True
    np.add.at(total_ms, at[inside], np.where(grown < 0, totals.values[1:], grown)[inside])

    # An average without a value says that there was no throttling for 30 s, and no more.
    is_within_average = has_average & (cells.ends - cells.starts <= AVERAGED_MS)
    quiet = (is_within_average | is_summed) & (longest_ms == 0) & (total_ms == 0)
    return {
        "throttled_requests": pa.nulls(count, pa.int64()),  # an average does not say of how many
        "throttle_ms": pa.array(np.rint(total_ms).astype(np.int64), mask=~is_summed),
        # The average is the least that the largest can be.
        "throttle_max_ms": pa.array(np.ceil(longest_ms).astype(np.int64), mask=(longest_ms == 0) & ~quiet),
    }


def _cell_of(cells: _Cells, times: Ints) -> tuple[Ints, Bools]:
    """By time the cell that it ends, or lies in; and whether there is one."""
    at = np.searchsorted(cells.ends, times, side="left")
    inside = at < len(cells.ends)
    inside[inside] = cells.starts[at[inside]] < times[inside]
    return at, inside
