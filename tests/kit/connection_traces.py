"""Random traces of connections: the quotas of addresses, who connects when, and looks at the metrics in between.

Pure: the same seed gives the same traces. Times never go backwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from kquota.config import BrokerConfig
from tests.kit.metering_traces import Trace

__all__ = ["connection_traces"]

# Several texts of one address stand together.
_IPS: Final = (
    ("10.0.0.7", "10.7", "::ffff:10.0.0.7"),
    ("::1", "0:0:0:0:0:0:0:1", "[::1]"),
    ("2001:db8::a:0:0:1", "2001:0db8:0:0:a::1"),
    ("127.0.0.1", "127.1"),
)
_LIMITS: Final = (1, 2, 2.9, 3, 10, 50, 0.5, 2**31 - 1)
_KEY: Final = "connection_creation_rate"


def connection_traces(count: int, seed: int) -> Iterator[Trace]:
    """`count` traces of 30 to 90 operations."""
    random = Random(seed)
    for number in range(1, count + 1):
        broker = BrokerConfig(
            quota_window_num=random.choice((1, 2, 3, 11)), quota_window_size_seconds=random.choice((1, 1, 2, 5))
        )
        yield Trace(number, "connections", broker, tuple(_operations(random, broker)))


def _operations(random: Random, broker: BrokerConfig) -> Iterator[dict[str, Any]]:
    now = 1_700_000_000_000 + random.randrange(10**9)
    window_ms = broker.quota_window_size_seconds * 1000
    ips = random.sample(_IPS, 2)
    yield _quota(random, ips)
    for _ in range(random.randint(30, 90)):
        chance = random.random()
        if chance < 0.1:
            yield _quota(random, ips)
            continue
        now += _step(random, window_ms, broker.quota_window_num)
        if chance < 0.15:
            yield {"op": "metrics", "t_ms": now}
        elif chance < 0.2:
            yield {"op": "time", "t_ms": now}
        else:
            ip, listener = random.choice(random.choice(ips)), random.choice(("PLAINTEXT", "OTHER"))
            yield {"op": "record", "t_ms": now, "ip": ip, "listener": listener, "key": _KEY, "value": 1}
    yield {"op": "metrics", "t_ms": now + random.choice((0, 1, window_ms))}


def _quota(random: Random, ips: list[tuple[str, ...]]) -> dict[str, Any]:
    ip = None if random.random() < 0.4 else random.choice(random.choice(ips))
    value = None if random.random() < 0.25 else random.choice(_LIMITS)
    return {"op": "quota", "entity": {"ip": ip}, "key": _KEY, "value": value}


def _step(random: Random, window_ms: int, windows: int) -> int:
    return random.choice((
        0, 0, 0, 0, 1, random.randint(1, 100), random.randint(1, 100), random.randint(1, window_ms),
        window_ms - 1, window_ms, windows * window_ms + random.choice((-1, 0, 1)),
        3_600_000 + random.choice((-1, 1, 30_000)) if random.random() < 0.2 else 1,
    ))  # fmt: skip
