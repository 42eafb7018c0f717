"""A DescribeClientQuotas answer of 10,000 entries, written and read by our codec, kio and kafka-python, interleaved.

Aim: writing 3 x faster than both, reading 1.5 x faster than kafka-python. The ratio to kio, whose reader is native
code, is stated. Before anything is timed all three write the same bytes and read the same values.

Usage: ``python -m benchmarks.bench_codec [--rounds N] [--results DIR]``
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.measure import machine
from benchmarks.results_page import RESULTS, write_readme
from kquota.wire.apis import DESCRIBE_CLIENT_QUOTAS
from kquota.wire.messages.client_quotas import DescribeClientQuotasResponse, EntityPart, Entry, Value
from tests.kit.wire_values import kafka_python_class, kio_bytes, kio_class, kio_read, same_as_kafka_python, to_kio

__all__ = ["answer"]

ENTRIES: Final = 10_000
VERSION: Final = 1
_KEYS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")


def answer(entries: int) -> DescribeClientQuotasResponse:
    """A user with a client-id each, and three values: 98 bytes an entry."""
    return DescribeClientQuotasResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        entries=[
            Entry(
                [EntityPart("user", f"u{number:05}"), EntityPart("client-id", f"c{number:05}")],
                [Value(key, 1024.0 + number) for key in _KEYS],
            )
            for number in range(entries)
        ],
    )


def _tools(entries: int) -> tuple[bytes, dict[str, dict[str, Callable[[], Any]]]]:
    """What each tool is timed with, checked to do the same.

    :raises AssertionError: one writes other bytes, or reads other values.
    """
    value = answer(entries)
    ours = DESCRIBE_CLIENT_QUOTAS.response_codec(VERSION)
    body = ours.write(value)
    kio_kind = kio_class(DESCRIBE_CLIENT_QUOTAS, VERSION, "response")
    kio_value = to_kio(value, kio_kind)
    python_kind = kafka_python_class(DESCRIBE_CLIENT_QUOTAS, "Response")
    python_value = python_kind.decode(body, version=VERSION)
    assert kio_bytes(kio_value) == body
    assert kio_read(kio_kind, body) == kio_value
    assert bytes(python_value.encode()) == body
    assert same_as_kafka_python(value, python_value, VERSION)
    assert ours.read(body, 0) == (value, len(body))
    return body, {
        "encode": {
            "kquota": lambda: ours.write(value),
            "kio": lambda: kio_bytes(kio_value),
            "kafka-python": python_value.encode,
        },
        "decode": {
            "kquota": lambda: ours.read(body, 0),
            "kio": lambda: kio_read(kio_kind, body),
            "kafka-python": lambda: python_kind.decode(body, version=VERSION),
        },
    }


def _ms(work: Callable[[], Any]) -> float:
    gc.collect()
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_codec", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--results", type=Path, default=RESULTS, help="where codec.json is written")
    options = parser.parse_args()
    body, tools = _tools(ENTRIES)
    print(f"{len(body):,} bytes; all tools write and read the same")
    times: dict[str, dict[str, list[float]]] = {part: {tool: [] for tool in by_tool} for part, by_tool in tools.items()}
    for _ in range(options.rounds):
        for part, by_tool in tools.items():
            for tool, work in by_tool.items():
                times[part][tool].append(_ms(work))
    medians = {part: {tool: statistics.median(ms) for tool, ms in by.items()} for part, by in times.items()}
    ratios = {
        f"{part}: {tool} / kquota": medians[part][tool] / medians[part]["kquota"]
        for part in tools
        for tool in ("kio", "kafka-python")
    }
    report = {
        "command": f"python -m benchmarks.bench_codec --rounds {options.rounds}",
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "bytes": len(body),
        "median_ms": {part: {tool: round(ms, 2) for tool, ms in by.items()} for part, by in medians.items()},
        "ratios": {name: round(value, 2) for name, value in ratios.items()},
    }
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "codec.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    write_readme(options.results)
    for part, found in medians.items():
        print(part, ", ".join(f"{tool} {ms:.1f} ms" for tool, ms in found.items()))
    for name, value in ratios.items():
        print(f"{name}: {value:.2f}")


if __name__ == "__main__":
    main()
