"""summary.json of an analysis, as the page needs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kquota.errors import InputError
from kquota.pipeline.dataset import summary as recorded
from kquota.pipeline.report.model import GrainDifference, RateWindow, Summary, WhatIfRun

__all__ = ["page_summary", "rate_window", "zone_of"]

_SHOWN_VERSIONS: Final = 60
_SHOWN_INPUTS: Final = 20


def page_summary(found: recorded.Summary) -> Summary:
    """The parts that the page prints. A count of a step that was not run is None, and the page says "not recorded"."""
    changes_ms, known_from_ms, recorded_from_ms = _over_time(found.quotas_over_time, found.start_ms)
    return Summary(
        timezone=found.timezone,
        inputs=tuple(one.file for one in found.inputs[:_SHOWN_INPUTS]),
        inputs_total=len(found.inputs),
        lines=found.lines,
        good=found.good,
        rejected=found.rejected,
        blank=found.blank,
        forwarded=found.forwarded,
        clients=found.clients,
        meters=found.meters,
        limited_meters=found.limited_meters,
        throttled_meters=found.throttled_meters,
        throttle_ms=found.throttle_ms,
        unknown_amounts=found.unknown_amounts,
        versions=tuple(_versions(found.versions))[:_SHOWN_VERSIONS],
        seconds=tuple(found.seconds.items()),
        settings=tuple((name, float(value)) for name, value in found.settings.items()),
        metrics="" if found.metrics is None else _metrics(found.metrics),
        kept_requests=found.kept_requests,
        limit_changes_ms=changes_ms,
        limits_known_from_ms=known_from_ms,
        quotas_recorded_from_ms=recorded_from_ms,
        what_if=None if found.whatif is None else _what_if(found.whatif),
        curve_model="" if found.curve is None else found.curve.model,
        unmet=None if found.recommendations is None else found.recommendations.unmet,
    )


def _over_time(
    quotas: recorded.QuotasOverTimeRead | None, start_ms: int | None
) -> tuple[tuple[int, ...], int | None, int | None]:
    """When limits changed, since when they are known if not for all of the log, and since when they are recorded."""
    if quotas is None:
        return (), None, None
    begins = [period.valid_from_ms for period in quotas.periods]
    first_ms = begins[0] if begins else None
    is_late = first_ms is not None and start_ms is not None and first_ms > start_ms
    changes_ms = tuple(begin for begin in begins[1:] if begin is not None)
    return changes_ms, first_ms if is_late else None, quotas.recorded_from_ms


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
    settings = dict(summary.settings)
    return RateWindow(num=int(settings.get(f"{prefix}.num", 11)), size_s=int(settings.get(f"{prefix}.size.seconds", 1)))


def _metrics(read: recorded.MetricsRead) -> str:
    """What was read of brokers' metrics, and what of it was not counted."""
    text = f"{read.readings:,} readings of {read.meters:,} meters"
    if read.step_ms:
        text += f", one each {read.step_ms / 1000:g} s"
    others = [
        f"{count:,} {words}"
        for count, words in (
            (read.covered_by_log, "not counted, because a request log covers their time"),
            (read.duplicates, "told more than once and counted once"),
            (read.gaps, "gaps"),
            (read.other_series, "series of other metrics left out"),
        )
        if count
    ]
    note = "rates are the broker's own averages, and requests are not counted in them"
    return f"{'; '.join([text, *others])}. From metrics, {note}."


def _what_if(run: recorded.WhatIfRun) -> WhatIfRun:
    """How other limits were tried, and how far seconds and requests are apart where both were."""
    found = run.grain_difference
    difference = None
    if found is not None and found.amount_mean is not None and found.amount_worst is not None:
        difference = GrainDifference(
            found.meters, found.amount_mean, found.amount_worst, found.amount_worst_meter or ""
        )
    return WhatIfRun(model=run.model, grain=run.grain, difference=difference)


def _versions(versions: Mapping[str, Mapping[str, int]]) -> list[tuple[str, str]]:
    """`{"LIST_OFFSETS": {"4": 40, "5": 3, "7": 1}}`, requests by API and version, becomes ("ListOffsets", "4–5, 7")."""
    return [
        (name.title().replace("_", ""), _ranges(sorted(int(one) for one in numbers if one.isdecimal())))
        for name, numbers in versions.items()
    ]


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
