"""Traces that are written out, each to show one thing; Kafka's own answers to them are in ``tests/data``.

They stand for tests that Kafka has of its quota managers: sequences of our own, in which the same has to show. Those
that begin with "odd" are what no broker is told, and has an answer to all the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from kquota.config import BrokerConfig
from tests.kit.metering_traces import Trace

__all__ = ["GOLDEN", "WRITTEN_TRACES", "golden_answers"]

GOLDEN: Final = Path(__file__).parents[1] / "data" / "written_traces.jsonl"
"""By ``python -m tests.real.record_written_traces``."""

START_MS: Final = 1_700_000_000_000
HOUR_MS: Final = 3_600_000
PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
REQUEST, MUTATION = "request_percentage", "controller_mutation_rate"

Operation: TypeAlias = Mapping[str, Any]
Client: TypeAlias = tuple[str, str]
APP: Final = ("alice", "app")


def golden_answers() -> dict[str, Sequence[Mapping[str, Any]]]:
    """What Kafka's managers answered, by the trace's name."""
    lines = map(json.loads, GOLDEN.read_text(encoding="utf-8").splitlines())
    return {line["trace"]: line["answers"] for line in lines}


def _quota(key: str, entity: str, value: float | None) -> Operation:
    """The entity as ``user=a client-id=``: nothing behind the sign is the default."""
    parts = [part.partition("=") for part in entity.split(" ")]
    return {"op": "quota", "entity": {kind: name or None for kind, _, name in parts}, "key": key, "value": value}


def _record(key: str, at_ms: int, value: float, client: Client = APP, **more: Any) -> Operation:
    who = {"user": client[0], "client-id": client[1]}
    return {"op": "record", "t_ms": START_MS + at_ms, **who, "key": key, "value": value, **more}


def _strict(at_ms: int, *partitions: float, client: Client = APP) -> list[Operation]:
    """A request of several topics."""
    return [_record(MUTATION, at_ms, number, client, strict=True) for number in partitions]


def _permissive(at_ms: int, *partitions: float, client: Client = APP) -> list[Operation]:
    return [_record(MUTATION, at_ms, number, client) for number in partitions]


def _unrecord(key: str, at_ms: int, value: float, client: Client = APP) -> Operation:
    return {**_record(key, at_ms, value, client), "op": "unrecord"}


def _every(key: str, step_ms: int, count: int, value: float, *, since_ms: int = 0) -> list[Operation]:
    return [_record(key, since_ms + step_ms * number, value) for number in range(count)]


_LEVELS: Final = (
    "user=alice client-id=app",
    "user=alice client-id=",
    "user=alice",
    "user= client-id=app",
    "user= client-id=",
    "user=",
    "client-id=app",
    "client-id=",
)
_CLIENTS: Final = (APP, ("alice", "other"), ("bob", "app"), ("bob", "other"), ("alice", ""), ("", "app"), ("", ""))


def _all_clients(at_ms: int, key: str = PRODUCE) -> list[Operation]:
    return [_record(key, at_ms, 100, client) for client in _CLIENTS]


def _precedence(levels: Sequence[str], value: float | None) -> list[Operation]:
    """One level after the other is set, or removed, and everybody asks each time."""
    found: list[Operation] = []
    for number, level in enumerate(levels):
        found.append(_quota(PRODUCE, level, None if value is None else value * (number + 1)))
        found += _all_clients(number * 100)
    return found


def _removed(entity: str) -> list[Operation]:
    """Over the limit, without one, and under one again: what was counted is still there."""
    return [
        _quota(PRODUCE, "client-id=other", 1),  # so that there are quotas throughout
        _quota(PRODUCE, entity, 40),
        _record(PRODUCE, 0, 7_300),
        _quota(PRODUCE, entity, None),
        _record(PRODUCE, 200, 7_300),
        _quota(PRODUCE, entity, 900),
        _record(PRODUCE, 400, 0),
    ]


def _odd_values(key: str, limit: float, *values: float) -> list[Operation]:
    """Each of them among usual ones, and what is left of it until the meter is another."""
    found = [_quota(key, "user=alice", limit)]
    for number, value in enumerate(values):
        since_ms = number * 2 * HOUR_MS
        found += [_record(key, since_ms, 1), _record(key, since_ms + 400, value), _record(key, since_ms + 500, 1)]
        found += [_record(key, since_ms + 1_500, 1), _record(key, since_ms + 30_000, 1)]
    return found


def _odd_limits(key: str, *limits: float) -> list[Operation]:
    """Each of them in turn on the same meter, and a usual one after it."""
    found: list[Operation] = []
    for number, limit in enumerate(limits):
        at_ms = number * 1_300
        found += [_quota(key, "user=alice", limit), _record(key, at_ms, 7), _record(key, at_ms, 0)]
        found += [_quota(key, "user=alice", 2), _record(key, at_ms + 600, 5)]
    return found


def _backwards(key: str, limit: float, value: float) -> list[Operation]:
    """A clock that goes back by a moment, by seconds, and by hours, and comes again."""
    times_ms = (0, 800, 799, 2_500, -700, 3_000, 40_000, 28_000, -2 * HOUR_MS, -2 * HOUR_MS + 1, 41_000, 3 * HOUR_MS)
    return [_quota(key, "user=alice", limit), *(_record(key, at_ms, value) for at_ms in times_ms)]


def _flat(*parts: Operation | Sequence[Operation]) -> tuple[Operation, ...]:
    return tuple(one for part in parts for one in ([part] if isinstance(part, Mapping) else part))


_TEN_MUTATION_WINDOWS: Final = BrokerConfig(controller_quota_window_num=10)
_LONG_NAME: Final = "n" * 5_000
_WRITTEN: Final[Mapping[str, tuple[BrokerConfig, tuple[Operation, ...]]]] = {
    "precedence, most specific last": (BrokerConfig(), tuple(_precedence(_LEVELS[::-1], 10))),
    "precedence, most specific first": (BrokerConfig(), tuple(_precedence(_LEVELS, 10))),
    "precedence, removed from the top": (
        BrokerConfig(),
        _flat(*(_quota(PRODUCE, level, 3 * n) for n, level in enumerate(_LEVELS, 1)), _precedence(_LEVELS, None)),
    ),
    "default user set and removed": (BrokerConfig(), tuple(_removed("user="))),
    "user and client id set and removed": (BrokerConfig(), tuple(_removed("user=alice client-id=app"))),
    "default client id of a user set and removed": (BrokerConfig(), tuple(_removed("user=alice client-id="))),
    "bytes over and under again": (
        BrokerConfig(),
        _flat(
            _quota(FETCH, "client-id=", 1_200),
            _every(FETCH, 750, 16, 870),
            _record(FETCH, 12_100, 9_400),
            _every(FETCH, 500, 30, 120, since_ms=12_600),
            _record(FETCH, 28_000, 21_000),
            _record(FETCH, 39_500, 10),
        ),
    ),
    "request time over and under again": (
        BrokerConfig(),
        _flat(
            _quota(REQUEST, "user=alice", 4.5),
            _every(REQUEST, 700, 20, 2.9),
            _record(REQUEST, 14_050, 6.25),
            _record(REQUEST, 14_060, 41.125),
            _every(REQUEST, 900, 16, 0.375, since_ms=14_900),
        ),
    ),
    "throttle times of ten windows": (
        BrokerConfig(quota_window_num=10),
        _flat(_quota(PRODUCE, "user=alice", 130), _every(PRODUCE, 0, 9, 250), _every(PRODUCE, 410, 25, 170)),
    ),
    "throttle times of eleven windows": (
        BrokerConfig(),
        _flat(_quota(PRODUCE, "user=alice", 130), _every(PRODUCE, 0, 9, 250), _every(PRODUCE, 410, 25, 170)),
    ),
    "a wait that is shorter than its bound": (
        BrokerConfig(quota_window_size_seconds=4),
        _flat(_quota(REQUEST, "user=alice", 20), _every(REQUEST, 0, 8, 101.3), _every(REQUEST, 2_900, 14, 55.7)),
    ),
    "a steady rate after the first window": (
        BrokerConfig(quota_window_num=5),
        _flat(_quota(PRODUCE, "user=alice", 10**9), _every(PRODUCE, 250, 80, 64)),
    ),
    "a steady rate of long windows": (
        BrokerConfig(quota_window_num=3, quota_window_size_seconds=7),
        _flat(_quota(PRODUCE, "user=alice", 10**9), _every(PRODUCE, 1_400, 50, 64)),
    ),
    "tokens given back": (
        _TEN_MUTATION_WINDOWS,
        _flat(
            _quota(MUTATION, "user=alice", 3),
            _permissive(0, 18, 16),
            _unrecord(MUTATION, 0, 9),
            _permissive(0, 0),
            _unrecord(MUTATION, 600, 700),
            _permissive(600, 0, 31),
            _unrecord(MUTATION, 650, 1),
            _permissive(650, 0),
        ),
    ),
    "strict mutations": (
        _TEN_MUTATION_WINDOWS,
        _flat(
            _quota(MUTATION, "user=alice", 4),
            *(_strict(at_ms, 26) for at_ms in (0, 100, 200, 1_500, 3_100, 3_300, 9_000, 10_000, 60_000, 60_000)),
        ),
    ),
    "permissive mutations": (
        _TEN_MUTATION_WINDOWS,
        _flat(
            _quota(MUTATION, "user=alice", 4),
            *(_permissive(at_ms, 26) for at_ms in (0, 100, 200, 1_500, 3_100, 30_000, 60_000, 60_000)),
        ),
    ),
    "strict and permissive mutations of one client": (
        _TEN_MUTATION_WINDOWS,
        _flat(
            _quota(MUTATION, "user=alice", 2.5),
            _strict(0, 20),
            _permissive(0, 20),
            _strict(1_000, 1),
            _permissive(2_000, 1),
            _strict(8_700, 1, 1, 1),
        ),
    ),
    "strict requests of several topics": (
        _TEN_MUTATION_WINDOWS,
        _flat(
            _quota(MUTATION, "user=alice", 2),
            _strict(0, 6, 13, 4, 1, 1),  # created
            _strict(1_200, 3),
            _strict(1_501, 9, 9),  # partitions added
            _strict(30_000, 23, 23),  # deleted
            _strict(31_500, 0),
            _strict(31_501, 0),
        ),
    ),
    "permissive requests of several topics": (
        _TEN_MUTATION_WINDOWS,
        _flat(
            _quota(MUTATION, "user=alice", 2),
            _permissive(0, 6, 13, 4, 1, 1),
            _permissive(1_200, 3),
            _permissive(30_000, 23, 23),
        ),
    ),
    "requests of a client without a limit": (
        _TEN_MUTATION_WINDOWS,
        _flat(
            _strict(0, 500, 500),
            _permissive(0, 500, 500),
            _quota(MUTATION, "user=bob", 2),
            _strict(0, 500, 500),
            _permissive(0, 500, 500),
        ),
    ),
    "a limit of mutations that changes": (
        _TEN_MUTATION_WINDOWS,
        _flat(
            _quota(MUTATION, "user=alice", 1.5),
            _strict(0, 21),
            _strict(0, 1),
            _quota(MUTATION, "user=alice", 4),
            _strict(900, 1),
            _strict(2_000, 1),
            _quota(MUTATION, "user=alice", None),
            _strict(2_000, 1_000),
        ),
    ),
    "names as they came": (
        BrokerConfig(),
        _flat(
            _quota(PRODUCE, "user= client-id=", 10),
            *(
                _record(PRODUCE, number, 150, client)
                for number, client in enumerate(
                    [("a:b", "c"), ("a", "b:c"), ("x/y ü", "id@%$ *~"), ("%2A", "+"), (_LONG_NAME, _LONG_NAME)]
                )
            ),
        ),
    ),
    "odd bytes": (
        BrokerConfig(),
        tuple(_odd_values(PRODUCE, 10, math.nan, math.inf, -math.inf, -500, 1e308, 5e-324, 10**25)),
    ),
    "odd request time": (
        BrokerConfig(),
        tuple(_odd_values(REQUEST, 0.7, math.nan, math.inf, -math.inf, -0.3, 1e308, 5e-324)),
    ),
    "odd mutations": (
        BrokerConfig(),
        tuple(_odd_values(MUTATION, 3, math.nan, math.inf, -math.inf, -500, 1e308, 5e-324)),
    ),
    "odd limits of bytes": (BrokerConfig(), tuple(_odd_limits(PRODUCE, 0, -5, math.nan, math.inf, -math.inf, 5e-324))),
    "odd limits of request time": (BrokerConfig(), tuple(_odd_limits(REQUEST, 0, -5, math.nan, math.inf, -math.inf))),
    "odd limits of mutations: none": (BrokerConfig(), tuple(_odd_limits(MUTATION, 0))),
    "odd limits of mutations: below none": (BrokerConfig(), tuple(_odd_limits(MUTATION, -5))),
    "odd limits of mutations: not a number": (BrokerConfig(), tuple(_odd_limits(MUTATION, math.nan, 4))),
    "odd limits of mutations: infinite": (BrokerConfig(), tuple(_odd_limits(MUTATION, math.inf, 4))),
    "odd clock, bytes": (BrokerConfig(), tuple(_backwards(PRODUCE, 30, 170))),
    "odd clock, request time": (BrokerConfig(), tuple(_backwards(REQUEST, 1.5, 7.3))),
    "odd clock, mutations": (BrokerConfig(), tuple(_backwards(MUTATION, 2, 11))),
}
WRITTEN_TRACES: Final[Mapping[str, Trace]] = {
    name: Trace(number, name, broker, operations)
    for number, (name, (broker, operations)) in enumerate(_WRITTEN.items())
}
