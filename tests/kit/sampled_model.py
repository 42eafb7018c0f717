"""``SampledStat`` and ``Rate`` as they read: all samples are looked at each time."""

from __future__ import annotations

from dataclasses import dataclass

from kquota.metering.statistics import Windows

__all__ = ["SampledModel"]


@dataclass
class _Sample:
    value: float
    start_ms: int
    last_ms: int


class SampledModel:
    """A rate per second."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.samples: list[_Sample] = []
        self.current = 0

    def record(self, value: float, now_ms: int) -> None:
        if not self.samples:
            self.samples.append(_Sample(0, now_ms, now_ms))
        sample = self.samples[self.current]
        if now_ms - sample.start_ms >= self.windows.size_ms:
            self.current = (self.current + 1) % (self.windows.samples + 1)
            if self.current >= len(self.samples):
                self.samples.append(_Sample(0, now_ms, now_ms))
            sample = self.samples[self.current]
            sample.value, sample.start_ms, sample.last_ms = 0, now_ms, now_ms
        sample.value += value
        sample.last_ms = now_ms

    def measure(self, now_ms: int) -> float:
        covered_ms = self.covered_ms(now_ms)
        total = 0.0
        for sample in self.samples:  # one after the other: `sum` adds doubles better than Java does
            total += sample.value
        return total / (covered_ms / 1000)

    def covered_ms(self, now_ms: int) -> int:
        windows = self.windows
        for sample in self.samples:
            if now_ms - sample.last_ms >= windows.samples * windows.size_ms:
                sample.value, sample.start_ms, sample.last_ms = 0, now_ms, now_ms
        if not self.samples:
            self.samples.append(_Sample(0, now_ms, now_ms))
        elapsed_ms = now_ms - min(sample.start_ms for sample in self.samples)
        full = int(elapsed_ms / windows.size_ms)
        if full < windows.samples - 1:
            elapsed_ms += (windows.samples - 1 - full) * windows.size_ms
        return max(elapsed_ms, 1)
