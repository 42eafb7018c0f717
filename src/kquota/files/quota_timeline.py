"""Quotas over time: which were in force when. From files that are named by it, or from the changes of a store."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final, NamedTuple, Protocol, Self

from kquota.errors import InputError
from kquota.files.quota_file import QuotaFile
from kquota.files.reader import read_quota_file
from kquota.files.timestamps import parse_timestamp
from kquota.quotas import ClientQuotaEntity, QuotaChange, apply_changes

__all__ = ["QuotaHistory", "QuotaPeriod", "QuotaTimeline", "QuotasOverTime"]

_ENDINGS: Final = (".yaml", ".yml", ".json")


class QuotaPeriod(NamedTuple):
    """Quotas, and from when on they were in force: until the next, or for good."""

    valid_from_ms: int | None
    """None: as far back as anyone asks."""
    quotas: QuotaFile


class QuotasOverTime(Protocol):
    """Quotas of which it can be asked what they were."""

    def within(self, start_ms: int | None, end_ms: int | None) -> "QuotaTimeline":
        """Those in force at any time of [start, end); both are None where no time is asked for: the last ones."""


@dataclass(frozen=True, slots=True)
class QuotaTimeline:
    """Periods in the order of time. What was in force before the first of them begins is not known."""

    periods: tuple[QuotaPeriod, ...]
    recorded_from_ms: int | None = None
    """Where these quotas are from after the time that was asked for: when their record begins."""
    left_out: tuple[str, ...] = field(default=(), compare=False)
    """What files of other programs say and Kafka has no quota for, each with its file and place."""

    @classmethod
    def always(cls, quotas: QuotaFile) -> Self:
        """Quotas that never change."""
        return cls((QuotaPeriod(None, quotas),))

    @classmethod
    def of_files(cls, files: Mapping[str, str | bytes], *, folder: str) -> Self:
        """The quota files of a folder by name: ``2026-01-02T03:04:05Z.yaml`` holds from then until the next.

        :raises InputError: there are none, a name is no moment, two are the same, or a file cannot be used.
        """
        if not files:
            raise InputError(f"{folder}: there is no quota file in it; {_EXPECTED}")
        names: dict[int, str] = {}
        for name in sorted(files):
            stem = next((name.removesuffix(ending) for ending in _ENDINGS if name.endswith(ending)), "")
            at_ms = parse_timestamp(stem)
            if at_ms is None:
                raise InputError(f"{folder}/{name}: the name is not a time in UTC; {_EXPECTED}")
            if at_ms in names:
                raise InputError(f"{folder}/{name}: begins at the same time as {names[at_ms]}; keep one of them")
            names[at_ms] = name
        read = {at_ms: read_quota_file(files[name], name=f"{folder}/{name}") for at_ms, name in sorted(names.items())}
        return cls(
            tuple(QuotaPeriod(at_ms, file) for at_ms, file in read.items()),
            left_out=tuple(
                problem.to_text(f"{folder}/{names[at_ms]}") for at_ms, file in read.items() for problem in file.left_out
            ),
        )

    @property
    def last(self) -> QuotaFile | None:
        """The last ones, None where nothing is known."""
        return self.periods[-1].quotas if self.periods else None

    def with_ends(self) -> Iterator[tuple[QuotaPeriod, int | None]]:
        """The periods, each with when the next begins."""
        for number, period in enumerate(self.periods, start=1):
            yield period, self.periods[number].valid_from_ms if number < len(self.periods) else None

    def at(self, at_ms: int) -> QuotaFile | None:
        """Those in force at a time, None where that is not known."""
        begins = [-inf if period.valid_from_ms is None else period.valid_from_ms for period in self.periods]
        number = bisect_right(begins, at_ms)
        return self.periods[number - 1].quotas if number else None

    def within(self, start_ms: int | None, end_ms: int | None) -> "QuotaTimeline":
        """As :meth:`QuotasOverTime.within`. Periods with the same quotas become one."""
        if start_ms is None or end_ms is None:
            return replace(self, periods=self.periods[-1:])
        merged: list[QuotaPeriod] = []
        for period, until_ms in self.with_ends():
            begins_later = period.valid_from_ms is not None and period.valid_from_ms >= end_ms
            if begins_later or (until_ms is not None and until_ms <= start_ms):
                continue
            if merged and merged[-1].quotas.snapshot() == period.quotas.snapshot():
                merged[-1] = QuotaPeriod(merged[-1].valid_from_ms, period.quotas)  # labels and owners as written last
            else:
                merged.append(period)
        return replace(self, periods=tuple(merged))


_EXPECTED: Final = (
    "a folder of quotas over time holds files called by when they come into force, such as 2026-01-02T03:04:05Z.yaml"
    " or 2026-01-02T030405Z.yaml"
)


@dataclass(frozen=True, slots=True)
class QuotaHistory:
    """All changes of quotas since there were none, as (when, changes), oldest first."""

    commits: Sequence[tuple[int, Sequence[QuotaChange]]]
    strict: bool = False
    """Without it, what is asked about a time that ends before the first change is answered with the last quotas."""

    def within(self, start_ms: int | None, end_ms: int | None) -> QuotaTimeline:
        """As :meth:`QuotasOverTime.within`. Before the first change there may have been quotas elsewhere: not known."""
        if not self.commits or start_ms is None or end_ms is None:
            return QuotaTimeline.always(self._last())
        first_ms = self.commits[0][0]
        if end_ms <= first_ms and not self.strict:
            return replace(QuotaTimeline.always(self._last()), recorded_from_ms=first_ms)
        return QuotaTimeline(tuple(self._periods(start_ms, end_ms))).within(start_ms, end_ms)

    def _last(self) -> QuotaFile:
        return QuotaFile.of(apply_changes({}, (change for _, changes in self.commits for change in changes)))

    def _periods(self, start_ms: int, end_ms: int) -> Iterator[QuotaPeriod]:
        """One for each time between start and end at which something changed, and the one that start lies in."""
        snapshot: dict[ClientQuotaEntity, Mapping[str, float]] = {}
        begins_ms: int | None = None
        for at_ms, changes in self.commits:
            # A clock that was set back undoes nothing.
            next_ms = at_ms if begins_ms is None else max(at_ms, begins_ms)
            if next_ms >= end_ms:
                break
            if begins_ms is not None and next_ms > max(begins_ms, start_ms):
                yield QuotaPeriod(begins_ms, QuotaFile.of(snapshot))
            snapshot = apply_changes(snapshot, changes)
            begins_ms = next_ms
        if begins_ms is not None:
            yield QuotaPeriod(begins_ms, QuotaFile.of(snapshot))
