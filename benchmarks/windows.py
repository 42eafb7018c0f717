"""How close to its limit traffic was: windows and variation of what was counted in equal, short spans."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Closeness", "closeness", "sums", "window_sums"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Closeness:
    """Observed / limit over sliding windows, and the variation of seconds.

    `mean` is that of all counted spans, `least` and `most` are the extreme windows, `variation` the standard deviation
    of whole seconds over their mean (NaN where nothing was counted).
    """

    mean: float
    least: float
    most: float
    variation: float


def window_sums(counts: Sequence[float], width: int) -> list[float]:
    """The sums of all windows of `width` spans, each one span after the other; empty where there are too few spans.

    :raises ValueError: a window without a span.
    """
    if width < 1:
        raise ValueError(f"a window of {width} spans")
    if len(counts) < width:
        return []
    found = [sum(counts[:width])]
    for gone, come in zip(counts, counts[width:], strict=False):
        found.append(found[-1] - gone + come)
    return found


def sums(counts: Sequence[float], width: int) -> list[float]:
    """The sums of as many whole groups of `width` spans as there are, one after the other."""
    return [sum(counts[first : first + width]) for first in range(0, len(counts) - width + 1, width)]


def closeness(counts: Sequence[float], *, span_s: float, limit: float, window_s: float) -> Closeness:
    """How close `counts` in spans of `span_s` seconds come to `limit` a second.

    :raises ValueError: they are fewer than one window, or than one second.
    """
    windows = window_sums(counts, round(window_s / span_s))
    seconds = sums(counts, round(1 / span_s))
    if not windows or not seconds:
        raise ValueError(f"{len(counts)} spans of {span_s} s have no window of {window_s} s")
    mean = statistics.fmean(seconds)
    return Closeness(
        mean=sum(counts) / (len(counts) * span_s) / limit,
        least=min(windows) / window_s / limit,
        most=max(windows) / window_s / limit,
        variation=statistics.pstdev(seconds) / mean if mean else math.nan,
    )
