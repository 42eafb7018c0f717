"""Is the limit the limit? What clients get through, beside the limit, where the broker, a gateway or both enforce it.

Clients (Java's, librdkafka, kafka-python) produce to and fetch from a real Apache Kafka 4.3.0, each under a client id
with a limit of its own: steadily at 1.2 times the limit, in bursts of 2.4 times that for two seconds of every four, or
greedily, as much as they are let. What counts is the payload that a client was acknowledged or handed out, in spans of
100 ms: the bytes of the protocol, below 1 %, count against the limit and not here. After a warm-up come the mean, the
least and the most of all windows of 30 s, and the variation of seconds. A greedy client is let through ten seconds'
worth at once when a broker first sees it, and then goes in waves of eleven seconds, at nine tenths of its limit in the
mean.

The same work is done where (a) the broker enforces and clients are connected to it, (b) the gateway has the quotas
and the broker none, and (c) both have them. Aims: a gateway's worst window is within 2 % of the limit or not further
from it than the broker's, and both together let through 0.98 of what the broker alone does. Ends with 1 where one is
missed; two runs of the same differ by as much as is allowed for.

Low limits run all together, 20 MB/s in threes, endpoint after endpoint: half an hour. With ``--short``, for a test:
1 MB/s and steady only, on all endpoints at once, 46 s, and windows of 22 s.

Usage: ``python -m benchmarks.check_gateway_limits [--short] [--seconds S] [--only TEXT] [--without-gateway] [--results
DIR]``; needs a JDK and Kafka's jars.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol

from confluent_kafka import Producer

from benchmarks.gateway_process import gateway_process, write_quotas
from benchmarks.measure import machine
from benchmarks.results_page import RESULTS, write_readme
from benchmarks.windows import Closeness, closeness, sums
from examples.capture.broker import running_broker
from examples.capture.jars import java, kafka_jars
from kquota.admin import NewTopic, QuotaAdmin
from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity

KAFKA: Final = "4.3.0"
SPAN_S: Final = 0.1
PATTERNS: Final = {"steady": (1.0, 0.0, 1.2), "bursty": (2.0, 2.0, 2.4), "greedy": (1.0, 0.0, 0.0)}
"""Seconds on, seconds off, and how many times its limit a client offers while it is on; 0: as much as it is let."""
WITHIN: Final = 0.02
NOISE: Final = 0.02
"""By so much the worst windows of two runs of the same work differ."""
LEAST_OF_BOTH: Final = 0.98
KEYS: Final = {"produce": "producer_byte_rate", "fetch": "consumer_byte_rate"}
LIBRARIES: Final = ("java", "librdkafka", "kafka-python")
TOPIC: Final = "produced"
_PREFILL_BYTES: Final = 200_000_000
_SIZES: Final = {  # limit: bytes of records, of batches, of fetches
    100_000: (1_000, 16_384, 32_768),
    1_000_000: (4_000, 65_536, 262_144),
    20_000_000: (16_000, 262_144, 1_048_576),
}

Limit = tuple[str, str, float]
"""A client id, a quota key, a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one client does."""

    library: str
    kind: str
    pattern: str
    limit: int

    def __str__(self) -> str:
        return f"{self.library} {self.kind} {self.pattern} {self.limit // 1000}kB"

    def client_id(self, endpoint: str) -> str:
        return f"{self} {endpoint}".replace(" ", "-")

    @property
    def topic(self) -> str:
        return TOPIC if self.kind == "produce" else f"fetched-{self.limit}"


WORKS: Final = tuple(
    Work(library=library, kind=kind, pattern=pattern, limit=limit)
    for limit in _SIZES
    for kind in KEYS
    for pattern in PATTERNS
    for library in LIBRARIES
)


def turns(works: Sequence[Work], endpoints: Sequence[str], *, at_once: bool) -> list[list[tuple[Work, str]]]:
    """The runs that are done at the same time, one such list after the other."""
    found = [[[(work, name) for work in batch] for name in endpoints] for batch in batches(works)]
    if at_once:
        return [[run for by_endpoint in batch for run in by_endpoint] for batch in found]
    return [by_endpoint for batch in found for by_endpoint in batch]


def batches(works: Sequence[Work]) -> list[list[Work]]:
    """What runs at the same time: all with low limits, and of the high ones those that differ in the library only."""
    low = [work for work in works if work.limit <= 1_000_000]
    found = [low] if low else []
    high: dict[tuple[str, str, int], list[Work]] = {}
    for work in works:
        if work not in low:
            high.setdefault((work.kind, work.pattern, work.limit), []).append(work)
    return [*found, *high.values()]


class Endpoint(Protocol):
    """Where clients connect to, and who enforces their limits."""

    @property
    def name(self) -> str: ...

    def running(self, broker: str, limits: Sequence[Limit], folder: Path) -> AbstractContextManager[str]:
        """Set the limits, start what there is to start, and give the bootstrap address."""


@dataclass(frozen=True, slots=True)
class Broker:
    """The broker itself."""

    name: str = "broker"

    @contextlib.contextmanager
    def running(self, broker: str, limits: Sequence[Limit], folder: Path) -> Iterator[str]:
        set_limits(broker, limits)
        yield broker


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway with the limits in a file, in front of a broker without them, or with the same."""

    name: str
    broker_enforces: bool
    arguments: tuple[str, ...] = ()

    @contextlib.contextmanager
    def running(self, broker: str, limits: Sequence[Limit], folder: Path) -> Iterator[str]:
        if self.broker_enforces:
            set_limits(broker, limits)
        quotas = write_quotas(folder / f"{self.name}.yaml", limits)
        with gateway_process(broker, *self.arguments, quotas=quotas, log=folder / f"{self.name}.log") as gateway:
            yield gateway.bootstrap


BROKER: Final = Broker()
GATEWAY: Final = Gateway("gateway", broker_enforces=False)
BOTH: Final = Gateway("both", broker_enforces=True)


def set_limits(broker: str, limits: Sequence[Limit]) -> None:
    with QuotaAdmin(broker) as admin:
        admin.alter_client_quotas(
            ClientQuotaAlteration(ClientQuotaEntity({"client-id": client_id}), [ClientQuotaAlteration.Op(key, value)])
            for client_id, key, value in limits
        ).all()


def make_topics(broker: str, limits: Sequence[int]) -> dict[str, int]:
    """The topics that the work needs; how many records each has that is fetched from."""
    small = {"retention.bytes": "200000000", "segment.bytes": "50000000"}
    names = {f"fetched-{limit}": limit for limit in limits}
    with QuotaAdmin(broker) as admin:
        topics = [NewTopic(TOPIC, 1, 1, configs=small), *(NewTopic(name, 1, 1) for name in names)]
        admin.topics.create_topics(topics).all()
    records = {TOPIC: 0}
    producer = Producer({"bootstrap.servers": broker, "client.id": "prefill", "batch.size": 262_144})
    for name, limit in names.items():
        size = _SIZES[limit][0]
        records[name] = min(_PREFILL_BYTES, 40 * limit) // size
        for _ in range(records[name]):
            while True:
                try:
                    producer.produce(name, bytes(size))
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0
    return records


def rereads_after(records: int, record_bytes: int, fetch_bytes: int) -> int:
    """After how many records of a topic a client begins anew, so that what it fetches ahead never waits at the end."""
    return records - 4 * fetch_bytes // record_bytes


def spec(work: Work, endpoint: str, bootstrap: str, seconds: float, records: Mapping[str, int]) -> dict[str, Any]:
    """The work as its client is given it."""
    record_bytes, batch_bytes, fetch_bytes = _SIZES[work.limit]
    on_s, off_s, times_limit = PATTERNS[work.pattern]
    return {
        "bootstrap": bootstrap,
        "client_id": work.client_id(endpoint),
        "library": work.library,
        "kind": work.kind,
        "topic": work.topic,
        "rereads_after": rereads_after(records[work.topic], record_bytes, fetch_bytes),
        "record_bytes": record_bytes,
        "batch_bytes": batch_bytes,
        "unacknowledged": 8 * batch_bytes // record_bytes,
        "fetch_bytes": fetch_bytes,
        "fetched_ahead_bytes": fetch_bytes,
        "seconds": seconds,
        "span_s": SPAN_S,
        "on_s": on_s,
        "off_s": off_s,
        "pace": times_limit * work.limit,
    }


def run(specs: Sequence[Mapping[str, Any]], folder: Path) -> dict[str, list[int]]:
    """Run clients at the same time; what each counted in each span, by client id.

    :raises RuntimeError: one of them ended, or had errors; the message holds what it said.
    """
    program = Path(__file__).parent / "java" / "LimitClients.java"
    in_java = [one for one in specs if one["library"] == "java"]
    commands = [([sys.executable, "-m", "benchmarks.limit_client"], [one]) for one in specs if one not in in_java]
    if in_java:
        classes = f"{kafka_jars(KAFKA)}/*"
        commands.append(([str(java()), "-Xmx512m", "-cp", classes, str(program)], in_java))
    found: dict[str, list[int]] = {}
    with contextlib.ExitStack() as stack:
        running = []
        for number, (command, own) in enumerate(commands):
            log = stack.enter_context((folder / f"client-{number}.log").open("w+", encoding="utf-8"))
            process = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
            )
            stack.callback(process.kill)
            _write(process, json.dumps(own))
            running.append((process, own, log))
        for process, own, log in running:
            if _line(process) != "ready":
                raise RuntimeError(f"{own[0]['client_id']}: {_end_of(log)}")
        start_at = time.time() + 0.5
        for process, _, _ in running:
            _write(process, str(start_at))
        for process, own, log in running:
            answer = _line(process)
            if not answer:
                raise RuntimeError(f"{own[0]['client_id']}: {_end_of(log)}")
            for one in json.loads(answer):
                if one["errors"]:
                    raise RuntimeError(f"{one['client_id']}: {one['errors']} errors: {_end_of(log)}")
                found[one["client_id"]] = one["spans"]
    return found


def _write(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _end_of(log: Any) -> str:
    log.seek(0)
    text: str = log.read()
    return text[-2000:]


def distance(found: Closeness) -> float:
    """How far the worst window is from the limit."""
    return max(abs(found.least - 1), abs(found.most - 1))


def missed(found: Mapping[str, Closeness]) -> list[str]:
    """What a work's endpoints do not reach; nothing where there is only the broker."""
    said = []
    broker = found[BROKER.name]
    gateway, both = found.get(GATEWAY.name), found.get(BOTH.name)
    if gateway is not None and distance(gateway) > max(WITHIN, distance(broker) + NOISE):
        said.append(f"the gateway's worst window is {distance(gateway):.1%} off, the broker's {distance(broker):.1%}")
    if both is not None and both.mean < LEAST_OF_BOTH * broker.mean:
        said.append(f"both let through {both.mean / broker.mean:.3f} of what the broker does")
    return said


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.check_gateway_limits", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--short", action="store_true", help="1 MB/s and steady only, all at once, 46 s")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run, the warm-up included")
    parser.add_argument("--warm-up", type=float, default=15.0)
    parser.add_argument("--window", type=float, default=30.0)
    parser.add_argument("--only", default="", help="only work whose name has this in it, such as 'java produce'")
    parser.add_argument("--without-gateway", action="store_true", help="only the broker")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where gateway-limits.json is written")
    options = parser.parse_args()
    seconds, warm_up_s, window_s = options.seconds, options.warm_up, options.window
    works = [work for work in WORKS if options.only in str(work)]
    if options.short:
        seconds, warm_up_s, window_s = 46.0, 13.0, 22.0
        works = [work for work in works if work.limit == 1_000_000 and work.pattern == "steady"]
    endpoints: list[Endpoint] = [BROKER, *(() if options.without_gateway else (GATEWAY, BOTH))]
    before = machine()
    found: dict[Work, dict[str, Closeness]] = {work: {} for work in works}
    seconds_of: dict[tuple[Work, str], list[float]] = {}
    properties = {"log.retention.check.interval.ms": "5000", "log.segment.delete.delay.ms": "1000"}
    with TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        folder = Path(temporary)
        broker = stack.enter_context(
            running_broker(
                KAFKA, folder / "kafka", passwords={}, heap_mb=1024, log_requests=False, properties=properties
            )
        ).plaintext
        records = make_topics(broker, sorted({work.limit for work in works if work.kind == "fetch"}))
        addresses = {
            endpoint.name: stack.enter_context(
                endpoint.running(
                    broker, [(work.client_id(endpoint.name), KEYS[work.kind], work.limit) for work in works], folder
                )
            )
            for endpoint in endpoints
        }
        for together in turns(works, list(addresses), at_once=options.short):
            print(", ".join(f"{work} ({name})" for work, name in together), file=sys.stderr)
            counted = run([spec(work, name, addresses[name], seconds, records) for work, name in together], folder)
            for work, name in together:
                spans = counted[work.client_id(name)]
                seconds_of[work, name] = sums(spans, round(1 / SPAN_S))
                spans = spans[round(warm_up_s / SPAN_S) :]
                found[work][name] = closeness(spans, span_s=SPAN_S, limit=work.limit, window_s=window_s)
    report = {
        "command": f"python -m benchmarks.check_gateway_limits --seconds {seconds:g} --warm-up {warm_up_s:g} "
        f"--window {window_s:g}",
        "machine": before,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "kafka": KAFKA,
        "window_s": window_s,
        "works": [
            {
                "work": str(work),
                **asdict(work),
                "endpoints": {
                    name: {
                        **{key: round(value, 4) for key, value in asdict(one).items()},
                        "bytes_by_second": seconds_of[work, name],
                    }
                    for name, one in by.items()
                },
                "missed": missed(by),
            }
            for work, by in found.items()
        ],
    }  # fmt: skip
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "gateway-limits.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    write_readme(options.results)
    for work, by in found.items():
        for name, one in by.items():
            print(
                f"{work!s:34} {name:8} {one.mean:6.3f} of the limit, windows {one.least:6.3f} to {one.most:6.3f}, "
                f"seconds vary by {one.variation:.2f}"
            )
        for text in missed(by):
            print(f"{work!s:34} MISSED: {text}")
    return 1 if any(missed(by) for by in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
