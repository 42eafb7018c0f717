"""summary.json of an analysis, as the page needs it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kquota.errors import InputError

__all__ = ["GrainDifference", "RateWindow", "Summary", "WhatIfRun", "rate_window", "read_summary", "zone_of"]

_SHOWN_VERSIONS: Final = 60
_SHOWN_INPUTS: Final = 20


@dataclass(frozen=True, slots=True)
class GrainDifference:
    """How far seconds and requests are apart, on the `meters` that either throttles: in parts of the throughput."""

    meters: int
    mean: float
    worst: float
    worst_meter: str


@dataclass(frozen=True, slots=True)
class WhatIfRun:
    """How other limits were tried: `model` is open or closed, `grain` request or cell."""

    model: str
    grain: str
    difference: GrainDifference | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """The parts of summary.json that the page prints."""

    timezone: str = "UTC"
    inputs: tuple[str, ...] = ()
    inputs_total: int = 0
    lines: int | None = None
    good: int | None = None
    rejected: int | None = None
    blank: int | None = None
    forwarded: int | None = None
    clients: int | None = None
    meters: int | None = None
    limited_meters: int | None = None
    throttled_meters: int | None = None
    throttle_ms: int | None = None
    unknown_amounts: int | None = None
    versions: tuple[tuple[str, str], ...] = ()
    """API, and its versions seen, in words."""
    seconds: tuple[tuple[str, float], ...] = ()
    """Stage and how long it took."""
    settings: tuple[tuple[str, float | str], ...] = ()
    """Broker settings that were used, such as quota.window.num."""
    metrics: str = ""
    """What was read of brokers' metrics, in a sentence."""
    kept_requests: bool | None = None
    """Whether the table `requests` was written, of which the log can be replayed."""
    limit_changes_ms: tuple[int, ...] = ()
    """When limits changed while the log ran."""
    limits_known_from_ms: int | None = None
    """From when on it is known which quotas were in force; None where nothing says so."""
    quotas_recorded_from_ms: int | None = None
    """Where these are not the quotas of the log's time: when the record of their changes begins."""
    what_if: WhatIfRun | None = None
    """How the table `whatif` was made."""
    curve_model: str = ""
    """How clients are taken to behave in the table `curve`: open or closed."""
    unmet: int | None = None
    """How many rows of `recommendations` miss what was wanted."""


@dataclass(frozen=True, slots=True)
class RateWindow:
    """The window of the sampled rate: `num` windows of `size_s` seconds each."""

    num: int = 11
    size_s: int = 1

    @property
    def window_ms(self) -> int:
        """Length of all windows together."""
        return self.num * self.size_s * 1000


def read_summary(directory: Path) -> Summary:
    """Read DIR/summary.json. A count that is absent from it is None here, and the page says "not recorded".

    :raises InputError: the file is missing or is not a JSON object.
    """
    path = directory / "summary.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{directory} holds no readable summary.json ({error.strerror}); give the directory that"
            " `kquota analyze --out` wrote"
        ) from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}); run `kquota analyze` again with --overwrite") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} does not hold a JSON object; run `kquota analyze` again with --overwrite")
    changes_ms, known_from_ms, recorded_from_ms = _over_time(found.get("quotas_over_time"), found.get("start_ms"))
    return Summary(
        timezone=str(found.get("timezone") or "UTC"),
        inputs=tuple(_input(one) for one in _sequence(found.get("inputs"))[:_SHOWN_INPUTS]),
        inputs_total=len(_sequence(found.get("inputs"))),
        **{name: _count(found.get(name)) for name in _COUNTS},
        versions=tuple(_versions(found.get("versions")))[:_SHOWN_VERSIONS],
        seconds=tuple((name, float(value)) for name, value in _pairs(found.get("seconds")) if _is_number(value)),
        settings=tuple(
            (name, value if isinstance(value, str) else float(value))
            for name, value in _pairs(found.get("settings"))
            if _is_number(value) or isinstance(value, str)
        ),
        metrics=_metrics(found.get("metrics")),
        kept_requests=kept if isinstance(kept := found.get("kept_requests"), bool) else None,
        limit_changes_ms=changes_ms,
        limits_known_from_ms=known_from_ms,
        quotas_recorded_from_ms=recorded_from_ms,
        what_if=_what_if(found.get("whatif")),
        curve_model=str(dict(_pairs(found.get("curve"))).get("model") or ""),
        unmet=_count(dict(_pairs(found.get("recommendations"))).get("unmet")),
    )


def _over_time(value: object, start_ms: object) -> tuple[tuple[int, ...], int | None, int | None]:
    """When limits changed, since when they are known if not for all of the log, and since when they are recorded."""
    if not isinstance(value, Mapping):
        return (), None, None
    begins = [_count(one.get("valid_from_ms")) for one in _sequence(value.get("periods")) if isinstance(one, Mapping)]
    first_ms, log_ms = begins[0] if begins else None, _count(start_ms)
    is_late = first_ms is not None and log_ms is not None and first_ms > log_ms
    changes_ms = tuple(begin for begin in begins[1:] if begin is not None)
    return changes_ms, first_ms if is_late else None, _count(value.get("recorded_from_ms"))


_COUNTS: Final = (
    "lines",
    "good",
    "rejected",
    "blank",
    "forwarded",
    "clients",
    "meters",
    "limited_meters",
    "throttled_meters",
    "throttle_ms",
    "unknown_amounts",
)


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
    return RateWindow(
        num=_whole(settings.get(f"{prefix}.num"), default=11),
        size_s=_whole(settings.get(f"{prefix}.size.seconds"), default=1),
    )


def _metrics(value: object) -> str:
    """What was read of brokers' metrics, and what of it was not counted."""
    if not isinstance(value, Mapping):
        return ""
    counts = {name: one for name, one in _pairs(value) if _is_number(one)}

    def some(name: str, words: str) -> str:
        return f"{counts[name]:,} {words}" if counts.get(name) else ""

    read = f"{counts.get('readings', 0):,} readings of {counts.get('meters', 0):,} meters"
    if counts.get("step_ms"):
        read += f", one each {counts['step_ms'] / 1000:g} s"
    others = (
        some("covered_by_log", "not counted, because a request log covers their time"),
        some("duplicates", "told more than once and counted once"),
        some("gaps", "gaps"),
        some("other_series", "series of other metrics left out"),
    )
    note = "rates are the broker's own averages, and requests are not counted in them"
    return f"{'; '.join([read, *filter(None, others)])}. From metrics, {note}."


def _what_if(value: object) -> WhatIfRun | None:
    """How other limits were tried, and how far seconds and requests are apart where both were."""
    if not isinstance(value, Mapping):
        return None
    found = dict(_pairs(value.get("grain_difference")))
    mean, worst = found.get("amount_mean"), found.get("amount_worst")
    is_known = _is_number(mean) and _is_number(worst)
    return WhatIfRun(
        model=str(value.get("model") or ""),
        grain=str(value.get("grain") or ""),
        difference=GrainDifference(
            _count(found.get("meters")) or 0, float(mean), float(worst), str(found.get("amount_worst_meter") or "")
        )
        if mean is not None and worst is not None and is_known
        else None,
    )


def _whole(value: float | str | None, *, default: int) -> int:
    try:
        return max(1, int(float(value))) if value is not None else default
    except (ValueError, OverflowError):
        return default


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _count(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _pairs(value: object) -> list[tuple[str, Any]]:
    return [(str(name), one) for name, one in value.items()] if isinstance(value, Mapping) else []


def _sequence(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _input(value: object) -> str:
    return str(value.get("file", "")) if isinstance(value, Mapping) else str(value)


def _versions(value: object) -> list[tuple[str, str]]:
    """`{"LIST_OFFSETS": {"4": 40, "5": 3, "7": 1}}`, requests by API and version, becomes ("ListOffsets", "4–5, 7")."""
    return [
        (name.title().replace("_", ""), _ranges(sorted(int(one) for one, _ in _pairs(versions) if one.isdecimal())))
        for name, versions in _pairs(value)
    ]


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
