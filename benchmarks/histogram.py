"""Histograms of `c/load.c`: nanoseconds in 64 buckets for each power of two, so that none is off by more than 1 %."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["bucket_of", "merged", "middle_of", "quantile"]

PER_POWER: Final = 64
_EXACT_BITS: Final = 6


def bucket_of(ns: int) -> int:
    """The bucket of a time, as `bucket` in `c/load.c` has it."""
    if ns < PER_POWER:
        return ns
    power = ns.bit_length() - 1
    return (power - _EXACT_BITS + 1) * PER_POWER + (ns >> (power - _EXACT_BITS)) - PER_POWER


def middle_of(bucket: int) -> float:
    """The nanoseconds that stand for all in a bucket: the middle of the least and the most of them."""
    if bucket < PER_POWER:
        return float(bucket)
    shift = bucket // PER_POWER - 1
    least = (bucket % PER_POWER + PER_POWER) << shift
    return least + ((1 << shift) - 1) / 2


def merged(histograms: Iterable[Iterable[tuple[int, int]]]) -> Counter[int]:
    """All of them as one, by bucket."""
    found: Counter[int] = Counter()
    for histogram in histograms:
        for bucket, count in histogram:
            found[bucket] += count
    return found


def quantile(counts: Mapping[int, int], share: float) -> float:
    """The nanoseconds that at least this share of the values do not exceed, the least such; NaN without values."""
    wanted = share * sum(counts.values())
    passed = 0
    for bucket in sorted(counts):
        passed += counts[bucket]
        if passed and passed >= wanted:
            return middle_of(bucket)
    return float("nan")
