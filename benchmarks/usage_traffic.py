"""Who uses how much in generated usage: the profile, and the traffic of each client on each broker and key.

10,000 users with 5 client ids each, on 3 brokers and 2 keys: 300,000 clients of a broker and key, of which few cause
most cells (Zipf). Skewed traffic has one meter more, of one broker, with half of the cells: those of a user with many
client ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from kquota.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE

__all__ = [
    "EVEN",
    "HOT_KEY",
    "HOT_USER",
    "KEYS",
    "SHAPES",
    "SHARE_OF_CLIENT_ID",
    "SKEWED",
    "Ints",
    "Traffic",
    "UsageProfile",
    "names",
    "places",
    "traffic_of",
]

KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)
SHARE_OF_CLIENT_ID: Final = (0.5, 0.25, 0.15, 0.07, 0.03)
MOST_TURNS_PER_S: Final = 20.0
_BURST: Final = 8.0
EVEN, SKEWED = SHAPES = ("even", "skewed")
HOT_USER: Final = "hot"
HOT_KEY: Final = KEYS.index(PRODUCER_BYTE_RATE)
_HOT_TURNS_PER_S: Final = 3.0

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class UsageProfile:
    """What to generate."""

    rows: int = 50_000_000
    users: int = 10_000
    brokers: int = 3
    rules: int = 1_000
    cells_per_s: int = 2_000
    seed: int = 1
    shape: str = EVEN

    @property
    def name(self) -> str:
        """As a directory is called."""
        shape = "" if self.shape == EVEN else f"-{self.shape}"
        return f"usage-{self.rows}-{self.users}-{self.rules}-{self.cells_per_s}-{self.seed}{shape}"

    @property
    def hot_clients(self) -> int:
        """How many clients the hot meter has, so that about half of the cells are theirs."""
        return 0 if self.shape == EVEN else max(1, round(self.cells_per_s / 2 / -np.expm1(-_HOT_TURNS_PER_S)))


@dataclass(frozen=True, slots=True)
class Traffic:
    """Columns, one element per user, client id, broker and key: as many as users x 5 x brokers x 2, in that order, and
    at last those of the hot meter."""

    turns_per_s: Floats
    requests_each: Ints
    """Of a turn."""
    bytes_per_request: Floats
    burst_every_s: Ints
    """0 where there are no bursts."""
    burst_s: Ints
    phase_s: Ints

    def factor(self, series: Ints, second: Ints) -> Floats:
        """By how much a request is larger in a burst."""
        every = self.burst_every_s[series]
        is_burst = (second + self.phase_s[series]) % np.maximum(every, 1) < self.burst_s[series]
        return np.where((every > 0) & is_burst, _BURST, 1.0)

    @property
    def mean_bytes_per_s(self) -> Floats:
        """What is to be expected."""
        share = self.burst_s / np.maximum(self.burst_every_s, 1)
        burst = np.where(self.burst_every_s > 0, 1 + share * (_BURST - 1), 1.0)
        return self.turns_per_s * self.requests_each * self.bytes_per_request * burst


def traffic_of(profile: UsageProfile, random: np.random.Generator) -> Traffic:
    rank = random.permutation(profile.users)
    weight = 1.0 / (rank + 10.0)
    shape = (profile.users, len(SHARE_OF_CLIENT_ID), profile.brokers, len(KEYS))
    each = weight[:, None, None, None] * np.array(SHARE_OF_CLIENT_ID)[None, :, None, None]
    each = (each * random.lognormal(0.0, 0.7, shape)).ravel()
    hot = profile.hot_clients
    turns = _scaled(each, profile.cells_per_s // 2 if hot else profile.cells_per_s)
    turns = np.append(turns, np.full(hot, _HOT_TURNS_PER_S))
    count = len(turns)
    every = np.where(random.random(count) < 1 / 3, random.integers(60, 601, count), 0)
    return Traffic(
        turns,
        random.choice([1, 2, 4, 8], count),
        random.lognormal(np.log(20_000), 0.8, count),
        every,
        random.integers(5, 31, count),
        random.integers(0, 601, count),
    )


def _scaled(weights: Floats, active: int) -> Floats:
    """Turns per second, such that so many clients have one in a second."""
    wanted = min(active, len(weights) // 2)
    low, high = 0.0, 1e9
    for _ in range(100):
        scale = (low + high) / 2
        found = -np.expm1(-np.minimum(weights * scale, MOST_TURNS_PER_S)).sum()
        low, high = (scale, high) if found < wanted else (low, scale)
    return np.minimum(weights * high, MOST_TURNS_PER_S)


def names(profile: UsageProfile) -> tuple[list[str], list[str]]:
    """Users, and client ids; where there is a hot meter, those of it at last."""
    hot = profile.hot_clients
    users = [f"user-{number:05d}" for number in range(profile.users)]
    client_ids = [f"app-{number}" for number in range(len(SHARE_OF_CLIENT_ID))]
    return [*users, *[HOT_USER][:hot]], [*client_ids, *(f"hot-{number:05d}" for number in range(hot))]


def places(profile: UsageProfile, series: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """By row of `traffic` the numbers of its user, client id, broker and key."""
    shape = (profile.users, len(SHARE_OF_CLIENT_ID), profile.brokers, len(KEYS))
    others = int(np.prod(shape))
    user, client_id, broker, key = np.unravel_index(np.minimum(series, others - 1), shape)
    is_hot = series >= others
    return (
        np.where(is_hot, profile.users, user),
        np.where(is_hot, len(SHARE_OF_CLIENT_ID) + series - others, client_id),
        np.where(is_hot, 0, broker),
        np.where(is_hot, HOT_KEY, key),
    )
