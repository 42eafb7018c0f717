"""Parts of summary.json in the words of the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kquota.errors import InputError
from kquota.pipeline.dataset.summary import MetricsRead, QuotasOverTimeRead, Summary

__all__ = ["LimitTimes", "RateWindow", "limit_times", "metrics_words", "rate_window", "versions_words", "zone_of"]

_SHOWN_VERSIONS: Final = 60


class RateWindow(NamedTuple):
    """The window of the sampled rate: `num` windows of `size_s` seconds each."""

    num: int = 11
    size_s: int = 1

    @property
    def window_ms(self) -> int:
        """Length of all windows together."""
        return self.num * self.size_s * 1000


class LimitTimes(NamedTuple):
    """What is known of limits over the time of the log; times are milliseconds since the epoch."""

    changes_ms: tuple[int, ...] = ()
    """When limits changed."""
    known_from_ms: int | None = None
    """The log begins earlier than this, and which quotas were in force until then is not known."""
    recorded_from_ms: int | None = None
    """The quotas are those of now, because the record of their changes begins after the log, at this time."""


def limit_times(quotas: QuotasOverTimeRead | None, start_ms: int | None) -> LimitTimes:
    """When limits changed in a recording that begins at `start_ms`, and since when they are known."""
    if quotas is None:
        return LimitTimes()
    begins = [period.valid_from_ms for period in quotas.periods]
    first_ms = begins[0] if begins else None
    is_late = first_ms is not None and start_ms is not None and first_ms > start_ms
    changes_ms = tuple(begin for begin in begins[1:] if begin is not None)
    return LimitTimes(changes_ms, first_ms if is_late else None, quotas.recorded_from_ms)


def zone_of(summary: Summary) -> ZoneInfo:
    """Time zone in which the page prints times.

    :raises InputError: this machine does not know it.
    """
    try:
        return ZoneInfo(summary.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InputError(f"summary.json names the time zone {summary.timezone!r}, which is not known here") from error


def rate_window(summary: Summary, key: str) -> RateWindow:
    """Window of the enforced rate: quota.window.*, for mutations controller.quota.window.* (by default 11 x 1 s)."""
    prefix = "controller.quota.window" if key == "controller_mutation_rate" else "quota.window"
    settings = summary.settings
    return RateWindow(num=settings.get(f"{prefix}.num", 11), size_s=settings.get(f"{prefix}.size.seconds", 1))


def metrics_words(read: MetricsRead) -> str:
    """What was read of brokers' metrics, and what of it was not counted."""
    text = f"{read.readings:,} readings of {read.meters:,} meters"
    if read.step_ms:
        text += f", one each {read.step_ms / 1000:g} s"
    others = [
        f"{count:,} {words}"
        for count, words in (
            (read.covered_by_log, "not counted, because a request log covers their time"),
            (read.duplicates, "reported more than once and counted once"),
            (read.gaps, "gaps"),
            (read.other_series, "series of other metrics left out"),
        )
        if count
    ]
    note = "rates are the broker's own averages, and requests are not counted in them"
    return f"{'; '.join([text, *others])}. From metrics, {note}."


def versions_words(versions: Mapping[str, Mapping[str, int]]) -> list[tuple[str, str]]:
    """`{"LIST_OFFSETS": {"4": 40, "5": 3, "7": 1}}`, requests by API and version, becomes ("ListOffsets", "4–5, 7")."""
    return [
        (name.title().replace("_", ""), _ranges(sorted(int(one) for one in numbers if one.isdecimal())))
        for name, numbers in list(versions.items())[:_SHOWN_VERSIONS]
    ]


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
