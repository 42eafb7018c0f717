"""Real clients as fast as they can, through the gateway and directly to a real Apache Kafka 4.3.0, in turns.

Nobody has a limit that is reached; the gateway has one for each client, so that it charges and decides. Batches are of
64 KB. Aim: what Java's producer, librdkafka's and kafka-python's get through is at least 0.9 of what they do directly.

Usage: ``python -m benchmarks.bench_gateway_clients [--rounds N] [--seconds S] [--results DIR]``; needs a JDK and
Kafka's jars.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.check_gateway_limits import (
    GATEWAY,
    KAFKA,
    KEYS,
    LIBRARIES,
    SPAN_S,
    TOPIC,
    make_topics,
    rereads_after,
    run,
)
from benchmarks.measure import machine
from benchmarks.results_page import RESULTS, write_readme
from examples.capture.broker import running_broker

NEVER_REACHED: Final = 1e13
WARM_UP_S: Final = 3.0
RECORD_BYTES: Final = 4_000
FETCH_BYTES: Final = 1_048_576
FETCHED_AHEAD_BYTES: Final = 64 * 1_048_576
"""librdkafka's own default. With room for one answer it is its pause of 5 ms between two fetches that is measured."""
_FETCHED_LIMIT: Final = 1_000_000
"""Of the topic that is fetched from, which has records of this size."""


def spec(library: str, kind: str, bootstrap: str, seconds: float, records: dict[str, int]) -> dict[str, Any]:
    """A client that has always more to send, or fetches always more."""
    topic = TOPIC if kind == "produce" else f"fetched-{_FETCHED_LIMIT}"
    return {
        "bootstrap": bootstrap,
        "client_id": f"{library}-{kind}",
        "library": library,
        "kind": kind,
        "topic": topic,
        "rereads_after": rereads_after(records[topic], RECORD_BYTES, FETCH_BYTES),
        "record_bytes": RECORD_BYTES,
        "batch_bytes": 65_536,
        "unacknowledged": 4_000,
        "fetch_bytes": FETCH_BYTES,
        "fetched_ahead_bytes": FETCHED_AHEAD_BYTES,
        "seconds": seconds,
        "span_s": SPAN_S,
        "on_s": 1.0,
        "off_s": 0.0,
        "pace": 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bench_gateway_clients", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run, after 3 s to warm up")
    parser.add_argument("--without-gateway", action="store_true", help="only directly")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where gateway-clients.json is written")
    options = parser.parse_args()
    before = machine()
    limits = [(f"{library}-{kind}", key, NEVER_REACHED) for library in LIBRARIES for kind, key in KEYS.items()]
    found: dict[str, dict[str, list[float]]] = {}
    properties = {"log.retention.check.interval.ms": "2000", "log.segment.delete.delay.ms": "1000"}
    with TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        folder = Path(temporary)
        broker = stack.enter_context(
            running_broker(
                KAFKA, folder / "kafka", passwords={}, heap_mb=1024, log_requests=False, properties=properties
            )
        ).plaintext
        records = make_topics(broker, [_FETCHED_LIMIT])
        addresses = {"direct": broker}
        if not options.without_gateway:
            addresses["gateway"] = stack.enter_context(GATEWAY.running(broker, limits, folder))
        for turn in range(options.rounds):
            # The first of two runs finds caches and the broker's compiled code colder.
            in_turn = list(addresses.items())[:: -1 if turn % 2 else 1]
            for library in LIBRARIES:
                for kind in KEYS:
                    for name, address in in_turn:
                        one = spec(library, kind, address, options.seconds + WARM_UP_S, records)
                        [spans] = run([one], folder).values()
                        measured = spans[round(WARM_UP_S / SPAN_S) :]
                        mb_s = sum(measured) / (len(measured) * SPAN_S) / 1e6
                        found.setdefault(f"{library} {kind}", {}).setdefault(name, []).append(mb_s)
                        print(f"{library} {kind}, {name}: {mb_s:.0f} MB/s", file=sys.stderr)
    command = f"python -m benchmarks.bench_gateway_clients --rounds {options.rounds} --seconds {options.seconds:g}"
    report = {
        "command": command,
        "machine": before,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "kafka": KAFKA,
        "mb_s": {
            what: {name: round(statistics.median(all_), 1) for name, all_ in by.items()} for what, by in found.items()
        },
        "beside_direct": {what: beside_direct(by) for what, by in found.items() if "gateway" in by},
    }
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "gateway-clients.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    write_readme(options.results)
    for what, by in found.items():
        ratio = f", {beside_direct(by):.2f} of direct" if "gateway" in by else ""
        print(what, ", ".join(f"{name} {statistics.median(all_):.0f} MB/s" for name, all_ in by.items()) + ratio)


def beside_direct(by: dict[str, list[float]]) -> float:
    """The median of the rounds' ratios."""
    return round(statistics.median(one / two for one, two in zip(by["gateway"], by["direct"], strict=True)), 3)


if __name__ == "__main__":
    main()
