"""Random traces for one statistic in any unit of time, and what ours measures; ``StatisticTraces.java`` has Kafka's.

Clocks may go back here, and numbers need not be any: a statistic has an answer to everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from kquota.metering.statistics import SampledRate, TimeUnit, TokenBucket, Windows
from tests.kit.line_program import LineProgram, java_command

__all__ = ["STATISTICS", "StatisticTrace", "Step", "statistic_judge", "statistic_traces"]

PROGRAM: Final = Path(__file__).parents[1] / "real" / "java" / "StatisticTraces.java"
STATISTICS: Final = ("rate", "bucket")
START_MS: Final = 1_700_000_000_000
_STEPS: Final = (0, 0, 1, 7, 499, 500, 999, 1000, 1001, 2000, 10_000, 11_000, 60_000, 3_600_000, -1, -1500, -3_600_000)
_AMOUNTS: Final = (0.0, 1.0, 0.1, 60.0, 1e15, 1e-3, -5.0, -1e15, 1e300)
_LIMITS: Final = (5.0, 0.1, 1.0, 1e9, 333.3)
_ODD: Final = (math.nan, math.inf, -math.inf)


@dataclass(frozen=True, slots=True)
class Step:
    """Count `value`, if any, and measure."""

    t_ms: int
    value: float | None
    limit: float | None


@dataclass(frozen=True, slots=True)
class StatisticTrace:
    """A statistic, and what it meets."""

    statistic: str
    unit: TimeUnit
    windows: Windows
    steps: tuple[Step, ...]

    def line(self) -> dict[str, Any]:
        """As ``StatisticTraces.java`` reads it."""
        return {
            "statistic": self.statistic,
            "unit": self.unit.name,
            "samples": self.windows.samples,
            "window_ms": self.windows.size_ms,
            "steps": [
                {"t_ms": step.t_ms, "value": _json(step.value), "limit": _json(step.limit)} for step in self.steps
            ],
        }

    def ours(self) -> list[float]:
        """What is measured after each step."""
        if self.statistic == "rate":
            rate = SampledRate(self.windows, self.unit)
            return [_rate(rate, step) for step in self.steps]
        bucket = TokenBucket(self.windows, self.unit)
        return [_bucket(bucket, step) for step in self.steps]


def statistic_judge(jars: Path, errors: Path) -> LineProgram:
    """Kafka's statistics: each line a trace, answered by a list of numbers. Needs a compiler."""
    return LineProgram(java_command(jars, PROGRAM), errors=errors)


def statistic_traces(count: int, seed: int) -> Iterator[StatisticTrace]:
    """`count` traces of each statistic in each unit."""
    random = Random(seed)
    for _ in range(count):
        for statistic in STATISTICS:
            for unit in TimeUnit:
                windows = Windows(random.choice((1, 2, 10, 11, 11)), random.choice((1, 500, 1000, 1000, 2000)))
                yield StatisticTrace(statistic, unit, windows, tuple(_steps(random)))


def _steps(random: Random) -> Iterator[Step]:
    now_ms = START_MS + random.randrange(10**6)
    limit: float | None = random.choice(_LIMITS)
    odd = random.random() < 0.2
    for _ in range(random.randint(5, 50)):
        now_ms += random.choice(_STEPS[: -3 if random.random() < 0.9 else None])
        if random.random() < 0.1:
            limit = random.choice((*_LIMITS, None, *((0.0, -1.0, *_ODD) if odd else ())))
        value = random.choice((*_AMOUNTS, random.random() * 100, *(_ODD if odd and random.random() < 0.1 else ())))
        yield Step(now_ms, None if random.random() < 0.2 else value, limit)


def _rate(rate: SampledRate, step: Step) -> float:
    if step.value is not None:
        rate.record(step.value, step.t_ms)
    return rate.measure(step.t_ms)


def _bucket(bucket: TokenBucket, step: Step) -> float:
    if step.value is not None:
        bucket.record(step.value, step.t_ms, step.limit)
    return bucket.measure(step.t_ms, step.limit)


def _json(number: float | None) -> float | str | None:
    """JSON has no numbers that are none: texts, as Java reads them."""
    if number is None or math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
