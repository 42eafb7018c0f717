"""What the gateway costs beside a proxy that copies bytes blindly, and beside no proxy at all; interleaved, in ratios.

A load generator and a fake broker in C (`c/load.c`, `c/fake_broker.c`) share one processor, the proxy has another to
itself. Produce-like work has large requests and small answers, fetch-like work the other way round; frames of 100 B to
1 MB, 1 to 64 connections, 1 and 5 requests in flight on each, and TLS with the clients. The proxies:

- blind copy: `blind_copy.py`, a pair of protocols on the same event loop;
- gateway metering: there are quotas, and none for this client;
- gateway enforcing: this client has quotas that it never reaches, so that each request is charged and decided.

CPU is the proxy's own time for a pair of request and answer, MB/s the bytes of both directions. Runs are short and
many, so that what else the machine does meets all variants; ratios are medians of those of each round. Where many
requests are under way, latency is mostly the queue before the busiest processor: what a proxy adds shows with one
connection and one request in flight. Idle memory is what 1,000 connections that have asked once add to a process, for
each.

Usage: ``python -m benchmarks.bench_gateway [--quick] [--rounds N] [--seconds S] [--without-gateway] [--results DIR]``.
Needs a C compiler; for TLS, OpenSSL's headers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol

from benchmarks.c_programs import CompilerMissingError, compiled
from benchmarks.gateway_process import gateway_process, write_quotas, write_tls_listener
from benchmarks.histogram import merged, quantile
from benchmarks.measure import machine
from benchmarks.results_page import RESULTS, write_readme
from tests.kit.tls import Authority

CLIENT_ID: Final = "bench"
NEVER_REACHED: Final = 1e13
"""Bytes a second."""
FRAMES: Final = (100, 1_000, 64_000, 1_000_000)
SMALL_FRAME: Final = 1_000
IDLE_CONNECTIONS: Final = 1_000
_FIRST_CONNECTIONS: Final = 50
"""Opened and closed before idle memory is looked at, so that what is loaded once does not count."""
_FILES: Final = 10_000
_ATTEMPTS: Final = 5
WARM_UP_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of work. `frame_bytes` is the larger frame of request and answer."""

    kind: str
    frame_bytes: int
    connections: int
    in_flight: int
    tls: bool = False

    def __str__(self) -> str:
        size = f"{self.frame_bytes:,} B"
        return f"{self.kind} {size}, {self.connections} x {self.in_flight}{', TLS' if self.tls else ''}"


FULL: Final = tuple(
    Case(kind=kind, frame_bytes=frame, connections=connections, in_flight=in_flight, tls=tls)
    for tls, all_connections in ((False, (1, 16, 64)), (True, (16,)))
    for kind in ("produce", "fetch")
    for frame in FRAMES
    for connections in all_connections
    for in_flight in (1, 5)
)
QUICK: Final = tuple(
    case
    for case in FULL
    if (case.connections == 16 and case.in_flight == 1 and case.frame_bytes != 1_000)
    or (case.kind == "produce" and case.frame_bytes == 100 and not case.tls and case.connections * case.in_flight <= 80)
)


@dataclass(frozen=True, slots=True)
class Running:
    """Where the load goes, and the process whose CPU time and memory count; none without a proxy."""

    address: str
    pid: int | None


class Variant(Protocol):
    """A way from the clients to the broker."""

    @property
    def name(self) -> str: ...

    @property
    def has_tls(self) -> bool:
        """Whether it can speak TLS with clients."""

    def running(self, broker: str, folder: Path, certificate: Path | None) -> AbstractContextManager[Running]:
        """Start it, its files in `folder`; with a certificate clients speak TLS."""


@dataclass(frozen=True, slots=True)
class Direct:
    """No proxy: the fake broker itself."""

    name: str = "direct"
    has_tls: bool = False

    @contextlib.contextmanager
    def running(self, broker: str, folder: Path, certificate: Path | None) -> Iterator[Running]:
        yield Running(broker, None)


@dataclass(frozen=True, slots=True)
class BlindCopy:
    """`blind_copy.py`."""

    name: str = "blind copy"
    has_tls: bool = True

    @contextlib.contextmanager
    def running(self, broker: str, folder: Path, certificate: Path | None) -> Iterator[Running]:
        tls = [] if certificate is None else ["--certificate", str(certificate)]
        with listening([sys.executable, "-m", "benchmarks.blind_copy", broker, *tls]) as running:
            yield running


@dataclass(frozen=True, slots=True)
class Gateway:
    """`kquota gateway` with quotas for one client id, and further arguments."""

    name: str
    limited_client_id: str
    arguments: tuple[str, ...] = ()
    has_tls: bool = True

    @contextlib.contextmanager
    def running(self, broker: str, folder: Path, certificate: Path | None) -> Iterator[Running]:
        mark = f"{self.name.replace(' ', '-')}-{'plain' if certificate is None else 'tls'}"
        keys = ("producer_byte_rate", "consumer_byte_rate")
        quotas = write_quotas(folder / f"{mark}.yaml", [(self.limited_client_id, key, NEVER_REACHED) for key in keys])
        tls = []
        if certificate is not None:
            tls = ["--listener-config", str(write_tls_listener(folder / f"{mark}.properties", certificate))]
        with gateway_process(broker, *tls, *self.arguments, quotas=quotas, log=folder / f"{mark}.log") as gateway:
            [address] = gateway.brokers.values()
            yield Running(address, gateway.pid)


BLIND: Final = BlindCopy()
DIRECT: Final = Direct()
GATEWAYS: Final = (
    Gateway("gateway metering", limited_client_id="another"),
    Gateway("gateway enforcing", limited_client_id=CLIENT_ID),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run of the load: what it measured, and the CPU seconds of the proxy meanwhile (NaN: no proxy)."""

    pairs: int
    seconds: float
    bytes_per_pair: int
    histogram: list[tuple[int, int]]
    cpu_s: float

    @property
    def pairs_s(self) -> float:
        return self.pairs / self.seconds


@contextlib.contextmanager
def on_processor(number: int) -> Iterator[None]:
    """What is started in the block runs on this one of the processors that we may use, and so does this process."""
    before = os.sched_getaffinity(0)
    usable = sorted(before)
    os.sched_setaffinity(0, {usable[number % len(usable)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


PROXY: Final = 0
OTHERS: Final = 1


@contextlib.contextmanager
def listening(command: Sequence[str]) -> Iterator[Running]:
    """A program that says ``listening on HOST:PORT``; it ends with the block."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on "), line
        yield Running(line.removeprefix("listening on ").strip(), process.pid)
    finally:
        process.terminate()
        process.communicate(timeout=30)


def cpu_s(pid: int) -> float:
    """The CPU seconds of all threads that a process has now."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text(encoding="ascii").split()[0]) for thread in threads) / 1e9


def resident_bytes(pid: int) -> int:
    """What a process has in memory."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    [kib] = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(kib) * 1024


class Load:
    """The load generator."""

    def __init__(self) -> None:
        try:
            self._program = compiled("load", "-DWITH_TLS", "-lssl", "-lcrypto")
            self.has_tls = True
        except CompilerMissingError:
            self._program = compiled("load")
            self.has_tls = False

    def command(self, running: Running, case: Case, warm_up_s: float, seconds: float) -> list[str]:
        """What does the case's work at that address."""
        host, _, port = running.address.rpartition(":")
        work = [case.kind, case.frame_bytes, case.connections, case.in_flight, warm_up_s, seconds]
        return [str(self._program), host, port, *map(str, work), CLIENT_ID, "tls" if case.tls else "plain"]

    def sample(self, running: Running, case: Case, *, warm_up_s: float, seconds: float) -> Sample:
        """Run the case, again where not one answer came: something else had the processor.

        Raises AssertionError where the load fails; it says why on standard error.
        """
        for _ in range(_ATTEMPTS):
            found = self._sample(running, case, warm_up_s, seconds)
            if found.pairs:
                return found
        raise AssertionError(f"{case} at {running}: no answers")

    def _sample(self, running: Running, case: Case, warm_up_s: float, seconds: float) -> Sample:
        with (
            on_processor(OTHERS),
            subprocess.Popen(
                self.command(running, case, warm_up_s, seconds), stdout=subprocess.PIPE, text=True
            ) as process,
        ):
            assert process.stdout is not None
            assert process.stdout.readline() == "begin\n", f"{case} at {running}"
            before = math.nan if running.pid is None else cpu_s(running.pid)
            line = process.stdout.readline()
            after = math.nan if running.pid is None else cpu_s(running.pid)
            assert line, f"{case} at {running}"
        found = json.loads(line)
        return Sample(
            pairs=found["pairs"],
            seconds=found["seconds"],
            bytes_per_pair=found["request_bytes"] + found["answer_bytes"],
            histogram=[(bucket, count) for bucket, count in found["histogram"]],
            cpu_s=after - before,
        )

    @contextlib.contextmanager
    def idle(self, running: Running, connections: int, *, tls: bool) -> Iterator[None]:
        """Connections that have asked once each and wait."""
        case = Case(kind="idle", frame_bytes=0, connections=connections, in_flight=1, tls=tls)
        command = self.command(running, case, 0, 0)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "idle\n", f"{case} at {running}"
            yield
            process.communicate(timeout=60)


def idle_bytes(variant: Variant, broker: str, folder: Path, certificate: Path | None, load: Load) -> float:
    """What an idle connection adds to the memory of a fresh process."""
    tls = certificate is not None
    with variant.running(broker, folder, certificate) as running:
        assert running.pid is not None
        with load.idle(running, _FIRST_CONNECTIONS, tls=tls):
            pass
        time.sleep(0.5)  # for the connections to be forgotten
        before = resident_bytes(running.pid)
        with load.idle(running, IDLE_CONNECTIONS, tls=tls):
            return (resident_bytes(running.pid) - before) / IDLE_CONNECTIONS


def summary(case: Case, samples: Mapping[str, Sequence[Sample]]) -> dict[str, Any]:
    """Medians of a case by variant; ratios are medians of those of each round."""
    found = {}
    for name, own in samples.items():
        counts = merged(one.histogram for one in own)
        pairs_s = [one.pairs_s for one in own]
        cpu_us = statistics.median(one.cpu_s / one.pairs for one in own) * 1e6
        found[name] = {
            "pairs_s": {
                "median": round(statistics.median(pairs_s)), "least": round(min(pairs_s)), "most": round(max(pairs_s)),
            },
            "mb_s": round(statistics.median(one.pairs_s * one.bytes_per_pair for one in own) / 1e6, 1),
            "p50_us": round(quantile(counts, 0.5) / 1000, 1),
            "p99_us": round(quantile(counts, 0.99) / 1000, 1),
            "cpu_us": None if math.isnan(cpu_us) else round(cpu_us, 2),
            "beside_blind_copy": beside(own, samples.get(BLIND.name)),
            "beside_direct": beside(own, samples.get(DIRECT.name)),
            "cpu_beside_blind_copy": cpu_beside(own, samples.get(BLIND.name)),
        }  # fmt: skip
    return {**asdict(case), "variants": found}


def beside(own: Sequence[Sample], other: Sequence[Sample] | None) -> float | None:
    """How many times the other's pairs a second; None without the other."""
    if other is None:
        return None
    return round(statistics.median(one.pairs_s / two.pairs_s for one, two in zip(own, other, strict=True)), 3)


def cpu_beside(own: Sequence[Sample], other: Sequence[Sample] | None) -> float | None:
    """How many times the other's CPU time for a pair; None where one of them has none."""
    if other is None or math.isnan(own[0].cpu_s):
        return None
    ratios = [(one.cpu_s / one.pairs) / (two.cpu_s / two.pairs) for one, two in zip(own, other, strict=True)]
    return round(statistics.median(ratios), 3)


def goals(cases: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """By gateway: pairs and CPU beside the blind copy's, on small and on large frames; by how much the median grows."""
    found: dict[str, dict[str, float]] = {}
    plain = [case for case in cases if not case["tls"]]
    for name in dict.fromkeys(name for case in plain for name in case["variants"]):
        if name in {DIRECT.name, BLIND.name}:
            continue
        for size, chosen in (
            ("small", [case for case in plain if case["frame_bytes"] <= SMALL_FRAME]),
            ("large", [case for case in plain if case["frame_bytes"] > SMALL_FRAME]),
        ):
            variants = [case["variants"][name] for case in chosen]
            if variants:
                ratios = [one["beside_blind_copy"] for one in variants]
                cpu = statistics.median(one["cpu_beside_blind_copy"] for one in variants)
                own = found.setdefault(name, {})
                own[f"beside blind copy, {size} frames, median"] = round(statistics.median(ratios), 3)
                own[f"beside blind copy, {size} frames, least"] = min(ratios)
                own[f"CPU beside blind copy, {size} frames, median"] = round(cpu, 3)
        alone = [
            case["variants"]
            for case in plain
            if case["connections"] == case["in_flight"] == 1 and case["frame_bytes"] <= SMALL_FRAME
        ]
        if alone:
            added = [one[name]["p50_us"] - one[DIRECT.name]["p50_us"] for one in alone]
            found.setdefault(name, {})["p50 added to direct, us, most"] = round(max(added), 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_gateway", description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few cases, shortly: about a minute")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=0.35, help="of each run, after 0.1 s to warm up")
    parser.add_argument("--without-gateway", action="store_true", help="only direct and the blind copy")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where gateway.json is written")
    options = parser.parse_args()
    cases, rounds, seconds = (QUICK, 2, 0.3) if options.quick else (FULL, options.rounds, options.seconds)
    variants: list[Variant] = [DIRECT, BLIND, *(() if options.without_gateway else GATEWAYS)]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_FILES, hard) if hard >= 0 else _FILES, hard))
    before = machine()
    load = Load()
    if not load.has_tls:
        print("OpenSSL's headers are missing: nothing is measured with TLS", file=sys.stderr)
        cases = tuple(case for case in cases if not case.tls)
    samples: dict[Case, dict[str, list[Sample]]] = {}
    idle: dict[str, dict[str, int]] = {}
    with TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        folder = Path(temporary)
        certificate = Authority().issue("proxy", hosts=("127.0.0.1",)).write_pem(folder / "proxy.pem")
        with on_processor(OTHERS):
            broker = stack.enter_context(listening([str(compiled("fake_broker")), "0"])).address
        with on_processor(PROXY):
            running = {
                (variant.name, tls): stack.enter_context(variant.running(broker, folder, certificate if tls else None))
                for variant in variants
                for tls in (False, True)
                if not tls or (variant.has_tls and load.has_tls)
            }
        for number in range(rounds):
            turn = number % len(variants)
            for case in cases:
                for variant in [*variants[turn:], *variants[:turn]]:
                    if (variant.name, case.tls) in running:
                        there = running[variant.name, case.tls]
                        sample = load.sample(there, case, warm_up_s=WARM_UP_S, seconds=seconds)
                        samples.setdefault(case, {}).setdefault(variant.name, []).append(sample)
        for variant in variants:
            if variant is not DIRECT:
                idle[variant.name] = {
                    "TLS" if tls else "plain": round(
                        idle_bytes(variant, broker, folder, certificate if tls else None, load)
                    )
                    for tls in (False, True)
                    if load.has_tls or not tls
                }
    names = [variant.name for variant in variants]
    summaries = [summary(case, {name: by[name] for name in names if name in by}) for case, by in samples.items()]
    reached = goals(summaries)
    report = {
        "command": f"python -m benchmarks.bench_gateway --rounds {rounds} --seconds {seconds}",
        "machine": before,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "rounds": rounds,
        "cases": summaries,
        "idle_bytes_per_connection": idle,
        "goals": reached,
    }
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "gateway.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    write_readme(options.results)
    for case, found in zip(samples, summaries, strict=True):
        print(case)
        for name, one in found["variants"].items():
            cpu = "" if one["cpu_us"] is None else f", CPU {one['cpu_us']:.1f} us a pair"
            ratio = "" if one["beside_blind_copy"] is None else f", {one['beside_blind_copy']:.2f} of the blind copy"
            print(
                f"    {name:20} {one['pairs_s']['median']:9,} pairs/s, {one['mb_s']:8,} MB/s, "
                f"p50 {one['p50_us']:,} us, p99 {one['p99_us']:,} us{cpu}{ratio}"
            )
    print("idle bytes for a connection:", idle)
    for name, figures in reached.items():
        print(f"{name}:", ", ".join(f"{what} {value}" for what, value in figures.items()))


if __name__ == "__main__":
    main()
