"""Random traces for the metering engine: what a broker's quota managers are told, in order, by a clock.

Pure: the same seed gives the same traces. Every class comes equally often. Times never go backwards, and quotas are
such as a broker would take. The first time in a trace is when its broker starts: idle meters are dropped at that time
and every 30 s after it, before whatever happens in the same millisecond.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from kquota.config import BrokerConfig

__all__ = ["CLASSES", "Trace", "metering_traces"]

_BYTES: Final = ("producer_byte_rate", "consumer_byte_rate")
_PERCENT: Final = ("request_percentage",)
_MUTATIONS: Final = ("controller_mutation_rate",)
_KEYS: Final = (*_BYTES, *_PERCENT, *_MUTATIONS)
_LIMITS: Final[Mapping[str, tuple[float, ...]]] = {
    **dict.fromkeys(_BYTES, (1, 2, 10, 500, 2_000, 1_048_576, 10**9)),
    **dict.fromkeys(_PERCENT, (0.001, 0.1, 1.0, 12.5, 100.0, 800.0)),
    **dict.fromkeys(_MUTATIONS, (0.1, 0.5, 2.0, 5.0, 10.0, 333.3)),
}
_NO_LIMIT: Final = 2**63
"""As a double what Kafka takes for "unlimited": Long.MAX_VALUE."""

_HOUR_MS: Final = 3_600_000
_SWEEP_MS: Final = 30_000

# Each level as its parts: a name, the default, or nothing there.
_LEVELS: Final = (
    ("named", "named"),
    ("named", "default"),
    ("named", None),
    ("default", "named"),
    ("default", "default"),
    ("default", None),
    (None, "named"),
    (None, "default"),
)
_USERS: Final = ("alice", "bob", "carol")
_CLIENT_IDS: Final = ("app", "etl", "batch")
# fmt: off
_AWKWARD: Final = (
    "", "<default>", "<DEFAULT>", " ", "a b", "a+b", "a:b", ":", "*", "~", "%", "%41", "é", "日本", "😀", "\t", '"',
    "\\", "O=A client,CN=localhost", "a/b", "user=alice", "x" * 255,
)
# fmt: on


@dataclass(frozen=True, slots=True)
class _Class:
    """What its traces are made of; what appears twice comes twice as often."""

    steps: tuple[str, ...] = ("none", "one", "few", "part", "part", "edge", "edge", "span", "long")
    amounts: tuple[str, ...] = ("zero", "small", "fitting", "fitting", "fitting", "large")
    keys: tuple[str, ...] = _KEYS
    levels: tuple[tuple[str | None, str | None], ...] = _LEVELS
    awkward: bool = False
    at_first: tuple[int, ...] = (1, 1, 2, 3)
    """How many quotas are set before anything else."""
    changes: float = 0.08
    removals: float = 0.04
    unrecords: float = 0.05
    unchecked: float = 0.04
    """Of what is recorded without a look at the limit, and of request time that is exempt."""
    looks: float = 0.03
    """Of looks at the metrics in between; there is always one at the end."""
    strict: float = 0.5
    boundless: float = 0.0


_CLASSES: Final[Mapping[str, _Class]] = {
    "users only": _Class(levels=(("named", None), ("default", None))),
    "client ids only": _Class(levels=((None, "named"), (None, "default"))),
    "pairs only": _Class(levels=_LEVELS[:2] + _LEVELS[3:5]),
    "all levels": _Class(at_first=(2, 4, 6), changes=0.25, removals=0.15),
    "quotas come and go": _Class(at_first=(0, 1), changes=0.2, removals=0.3, steps=("none", "one", "few", "part")),
    "window edges": _Class(steps=("edge", "edge", "edge", "one", "none"), changes=0.02, removals=0.0),
    "bursts": _Class(steps=("none", "none", "none", "none", "one")),
    "idle": _Class(steps=("span", "span", "long", "edge", "one")),
    "dropped meters": _Class(
        # In between requests that are rejected: they keep no meter alive.
        steps=("none", "few", "half an hour", "half an hour", "hour", "hour", "hour", "sweep", "sweep", "day"),
        keys=_MUTATIONS * 3 + _KEYS,
        amounts=("small", "fitting", "large", "large", "huge"),
        strict=0.8,
        changes=0.02,
        removals=0.02,
        looks=0.15,
    ),
    "taken back": _Class(unrecords=0.45, at_first=(0, 1, 1, 2), amounts=("small", "fitting", "large", "large")),
    "huge": _Class(amounts=("small", "large", "huge", "huge"), boundless=0.2, unrecords=0.1),
    "percentages": _Class(keys=_PERCENT),
    "strict mutations": _Class(keys=_MUTATIONS, strict=1.0, unrecords=0.02),
    "permissive mutations": _Class(keys=_MUTATIONS, strict=0.0),
    "awkward names": _Class(awkward=True, at_first=(1, 2, 4), changes=0.2),
}
CLASSES: Final = tuple(_CLASSES)


@dataclass(frozen=True, slots=True)
class Trace:
    """The settings of a broker, and the operations that it meets."""

    number: int
    kind: str
    broker: BrokerConfig
    operations: tuple[Mapping[str, Any], ...]

    def line(self) -> list[Mapping[str, Any]]:
        """As ``MeteringTraces.java`` reads it: the settings, then the operations."""
        settings = {
            "quota.window.num": self.broker.quota_window_num,
            "quota.window.size.seconds": self.broker.quota_window_size_seconds,
            "controller.quota.window.num": self.broker.controller_quota_window_num,
            "controller.quota.window.size.seconds": self.broker.controller_quota_window_size_seconds,
        }
        return [settings, *map(_as_json, self.operations)]


def _as_json(operation: Mapping[str, Any]) -> Mapping[str, Any]:
    """JSON has no numbers that are none: texts, as Java reads them."""
    value = operation.get("value")
    if value is None or math.isfinite(value):
        return operation
    return {**operation, "value": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}


def metering_traces(count: int, seed: int) -> Iterator[Trace]:
    """`count` traces of 20 to 60 operations, with a look at the metrics at their end."""
    random = Random(seed)
    kinds: list[str] = []
    for number in range(1, count + 1):
        kinds = kinds or random.sample(CLASSES, len(CLASSES))
        kind = kinds.pop()
        writer = _Writer(random, _CLASSES[kind])
        yield Trace(number, kind, writer.broker, tuple(writer.write()))


class _Writer:
    """The trace that is being written."""

    def __init__(self, random: Random, kind: _Class) -> None:
        self.random = random
        self.kind = kind
        self.broker = BrokerConfig(*(self._windows() if index % 2 == 0 else self._seconds() for index in range(4)))
        users, client_ids = (_AWKWARD, _AWKWARD) if kind.awkward else (_USERS, _CLIENT_IDS)
        self.users = random.sample(users, 2)
        self.client_ids = random.sample(client_ids, 2)
        self.keys = random.sample(kind.keys, min(len(kind.keys), random.choice((1, 1, 2))))
        self.limits = {key: random.choice(_LIMITS[key]) for key in self.keys}
        self.now = self.start = 1_700_000_000_000 + random.randrange(10**9)
        self.operations: list[dict[str, Any]] = []
        self.there: list[tuple[str, dict[str, str | None]]] = []
        """The quotas that are set, by key and entity."""
        self.recorded: list[dict[str, Any]] = []

    def _windows(self) -> int:
        return self.random.choice((1, 2, 3, 11, 11, 11, self.random.randint(1, 20)))

    def _seconds(self) -> int:
        return self.random.choice((1, 1, 1, 2, self.random.randint(1, 10)))

    def write(self) -> list[dict[str, Any]]:
        kind, random = self.kind, self.random
        length = random.randint(20, 60)
        for _ in range(random.choice(kind.at_first)):
            self.set_quota()
        while len(self.operations) < length:
            chance = random.random()
            if (chance := chance - kind.changes) < 0:
                self.set_quota()
            elif (chance := chance - kind.removals) < 0:
                self.remove_quota()
            elif (chance := chance - kind.unrecords) < 0:
                self.unrecord()
            elif (chance := chance - kind.unchecked) < 0:
                self.record_unchecked()
            elif chance - kind.looks < 0:
                self.look()
            else:
                self.record()
        self.look()
        return self.operations

    def window(self, key: str) -> tuple[int, int]:
        """How many windows there are, and of how many milliseconds."""
        broker = self.broker
        if key in _MUTATIONS:
            return broker.controller_quota_window_num, broker.controller_quota_window_size_seconds * 1000
        return broker.quota_window_num, broker.quota_window_size_seconds * 1000

    def set_quota(self) -> None:
        random = self.random
        key = random.choice(self.keys)
        if self.there and random.random() < 0.3:
            key, entity = random.choice(self.there)
        else:
            entity = self.entity()
        value: float = self.limits[key] * random.choice((1, 1, 1, 0.5, 2, 10))
        if key in _BYTES:
            value = max(1, round(value))
        if random.random() < self.kind.boundless:
            value = random.choice((1, _NO_LIMIT))
        if (key, entity) not in self.there:
            self.there.append((key, entity))
        self.operations.append({"op": "quota", "entity": entity, "key": key, "value": value})

    def remove_quota(self) -> None:
        """Mostly one that is there."""
        key, entity = self.random.choice(self.keys), self.entity()
        if self.there and self.random.random() < 0.9:
            key, entity = self.random.choice(self.there)
        self.there = [one for one in self.there if one != (key, entity)]
        self.operations.append({"op": "quota", "entity": entity, "key": key, "value": None})

    def entity(self) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        parts = zip(("user", "client-id"), self.random.choice(self.kind.levels), strict=True)
        for (entity_type, part), names in zip(parts, (self.users, self.client_ids), strict=True):
            if part is not None:
                # No entity has an empty name, only a client can.
                found[entity_type] = self.random.choice([one for one in names if one]) if part == "named" else None
        return found

    def record(self) -> None:
        random = self.random
        key = random.choice(self.keys)
        self.step(key)
        if random.random() < 0.05:
            self.operations.append({"op": "time", "t_ms": self.now})
            self.step(key)
        client = {"user": random.choice(self.users), "client-id": random.choice(self.client_ids)}
        operation = {"op": "record", "t_ms": self.now, **client, "key": key, "value": self.amount(key)}
        self.recorded.append(operation)
        if key in _MUTATIONS and random.random() < self.kind.strict:
            operation = {**operation, "strict": True}
        self.operations.append(operation)

    def unrecord(self) -> None:
        """Mostly what was recorded last, and at once, as for a fetch that is throttled."""
        operation: dict[str, Any]
        if self.recorded and self.random.random() < 0.7:
            operation = self.recorded[-1]
            if self.random.random() < 0.3:
                self.step(operation["key"])
        else:
            key = self.random.choice(self.keys)
            client = {"user": self.random.choice(self.users), "client-id": self.random.choice(self.client_ids)}
            operation = {**client, "key": key, "value": self.amount(key)}
        self.operations.append({**operation, "op": "unrecord", "t_ms": self.now})

    def record_unchecked(self) -> None:
        """Of a rate, as the network's time is, or else the time of a request that is exempt."""
        key = self.random.choice(self.keys)
        self.step(key)
        if key in _MUTATIONS or (key in _PERCENT and self.random.random() < 0.5):
            value = self.random.choice((0.0, 0.5, 12.5, 300.0))
            self.operations.append({"op": "exempt", "t_ms": self.now, "value": value})
            return
        client = {"user": self.random.choice(self.users), "client-id": self.random.choice(self.client_ids)}
        operation = {"op": "record_no_throttle", "t_ms": self.now, **client, "key": key, "value": self.amount(key)}
        self.operations.append(operation)

    def look(self) -> None:
        """At the metrics, now or later."""
        if self.random.random() < 0.5:
            self.step(self.random.choice(self.keys))
        self.operations.append({"op": "metrics", "t_ms": self.now})

    def amount(self, key: str) -> float:
        random = self.random
        windows, window_ms = self.window(key)
        # What the limit lets through in all of the windows.
        full = self.limits[key] * windows * window_ms / 1000
        amount: float = 0
        match random.choice(self.kind.amounts):
            case "zero":
                pass
            case "small":
                amount = random.choice((1, self.limits[key], full / 100))
            case "fitting":
                amount = full * random.choice((0.1, 0.25, 0.5, 1, random.random()))
            case "large":
                amount = full * random.choice((1, 2, 10, 1000, 1 + random.random()))
            case "huge":
                amount = float(10 ** random.randint(9, 18))
            case unknown:
                raise AssertionError(unknown)
        return amount if key in _PERCENT else round(amount)

    def step(self, key: str) -> None:
        random = self.random
        windows, window_ms = self.window(key)
        near = random.choice((-1, 0, 1))
        since = self.now - (self.recorded[0]["t_ms"] if self.recorded else self.start)
        step = 0
        match random.choice(self.kind.steps):
            case "none":
                pass
            case "one":
                step = 1
            case "few":
                step = random.randint(2, 50)
            case "part":
                step = random.randint(1, window_ms)
            case "edge":  # of a window, counted from the first record
                step = window_ms * random.choice((1, 1, 1, 2, windows)) - since % window_ms + near
            case "span":  # what is remembered, and a window less and more
                step = window_ms * (windows + random.choice((-1, 0, 0, 1))) + near
            case "long":
                step = random.randint(windows * window_ms, 20 * windows * window_ms)
            case "half an hour":
                step = _HOUR_MS // 2 + random.choice((0, _SWEEP_MS)) + near
            case "hour":
                step = _HOUR_MS + random.choice((0, 0, _SWEEP_MS, random.randint(0, _SWEEP_MS))) + near
            case "sweep":  # the next time that idle meters are dropped
                step = _SWEEP_MS - (self.now - self.start) % _SWEEP_MS + random.choice((near, 0))
            case "day":
                step = random.randint(_HOUR_MS, 24 * _HOUR_MS)
            case unknown:
                raise AssertionError(unknown)
        self.now += max(step, 0)
