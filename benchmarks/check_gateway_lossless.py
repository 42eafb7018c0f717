"""Is anything lost, repeated or reordered through the gateway? Six clients at work while brokers and the gateway fail.

Unmodified clients (Java's, librdkafka, kafka-python, aiokafka, franz-go, sarama) write into one topic of a real Apache
Kafka 4.3.0 with three brokers, acks=all and min.insync.replicas=2, at the same time and each under its own client id,
compressed as far as each knows how. Meanwhile a broker is restarted, another killed, leaders are moved, the gateway is
killed and started again, and stopped and started again. Then every record that was acknowledged is looked for.

The runs are all of: PLAINTEXT, SASL_PLAINTEXT (SCRAM), SASL_SSL; idempotent producers, such without idempotence,
transactions of which every third is aborted; without quotas, and with such as throttle everyone. In those with quotas
a group of each client reads meanwhile. Aims: idempotent producers exactly once and in order, of transactions what was
committed and nothing else, of others everything acknowledged. How often producers without idempotence repeat a record
is counted for each fault alone, in rounds: with the faults of brokers also without a gateway, in turns. A run
in which something must not be is kept with what it was, and the check ends with 1.

Usage: ``python -m benchmarks.check_gateway_lossless [--records N] [--rounds N] [--only TEXT] [--results DIR]``; needs a
JDK, Kafka's jars and Go; a quarter of an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.measure import machine
from benchmarks.results_page import RESULTS, write_readme
from examples.capture.jars import kafka_jars
from tests.kit.gateway_runs import BROKER_FAULTS, FAULTS, GATEWAY_FAULTS, MODES, Outcome, Run, do
from tests.kit.kafka_cluster import LISTENERS, KafkaCluster, running_cluster
from tests.kit.workload import CLIENTS, Programs

GO_CLIENTS: Final = Path(__file__).parents[1] / "tests" / "real" / "go"
KAFKA: Final = "4.3.0"
USERS: Final = {"alice": "alice-secret", "bob": "bob-secret"}
BYTE_RATE: Final = 5_000
"""Of a client at each broker, who sends a third of 20 kB/s to it."""


def all_runs(records: int, rounds: int) -> list[Run]:
    """Every listener, mode and quota with all faults, then each fault alone for what repeats records."""
    together = [
        Run(
            listener=listener,
            mode=mode,
            faults=FAULTS,
            records=records,
            byte_rate=byte_rate,
            readers=CLIENTS if byte_rate else (),
        )
        for listener in LISTENERS
        for mode in MODES
        for byte_rate in (None, BYTE_RATE)
    ]
    alone = [
        Run(mode="plain", faults=(fault,), records=records, is_direct=is_direct)
        for _ in range(rounds)
        for fault in FAULTS
        for is_direct in ([True, False] if fault in BROKER_FAULTS else [False])
    ]
    return together + alone


def repeated(done: Sequence[tuple[Run, Outcome]]) -> dict[str, dict[str, list[int]]]:
    """By the fault: how many records were repeated in each round, directly and through the gateway."""
    found: dict[str, dict[str, list[int]]] = {}
    for run, outcome in done:
        if run.mode == "plain" and len(run.faults) == 1:
            by = found.setdefault(run.faults[0], {})
            by.setdefault("direct" if run.is_direct else "gateway", []).append(sum(outcome.duplicated.values()))
    return found


def report(done: Sequence[tuple[Run, Outcome]], failures: Sequence[tuple[Run, str]]) -> dict[str, Any]:
    """What is kept: one row for all runs of a listener, a mode and with or without quotas."""
    rows = []
    for run, outcome in done:
        if len(run.faults) == 1:
            continue
        rows.append(
            {
                "run": str(run),
                "sent": run.records * len(run.clients),
                "acknowledged": outcome.acknowledged,
                "in_the_log": outcome.log,
                "failed": outcome.failed,
                "repeated": sum(outcome.duplicated.values()),
                "repeated_by_client": dict(outcome.duplicated),
                "unacknowledged": outcome.unacknowledged,
                "seconds": round(outcome.seconds, 1),
                "problems": list(outcome.problems),
                "errors": list(outcome.errors),
            }
        )
    by_client = Counter[str]()
    for run, outcome in done:
        if not run.is_direct:
            by_client.update(outcome.duplicated)
    alone = [f"{run}: {problem}" for run, outcome in done if len(run.faults) == 1 for problem in outcome.problems]
    return {
        "runs": rows,
        "repeated": repeated(done),
        "repeated_by_client": dict(by_client),
        "problems": [*alone, *(f"{run}: {text}" for run, text in failures)],
    }


def _go_programs(folder: Path) -> Path:
    go = shutil.which("go")
    if go is None:
        raise SystemExit("no Go was found on the path")
    command = [go, "build", "-o", f"{folder}/", "./..."]
    subprocess.run(command, cwd=GO_CLIENTS, check=True, env={**os.environ, "CGO_ENABLED": "0"})
    return folder


def _do_all(
    runs: Sequence[Run], cluster: KafkaCluster, programs: Programs, folder: Path
) -> tuple[list[tuple[Run, Outcome]], list[tuple[Run, str]]]:
    done, failures = [], []
    for number, run in enumerate(runs):
        started = time.monotonic()
        try:
            outcome = do(run, cluster, programs, folder / f"run-{number}")
        except AssertionError as error:
            failures.append((run, str(error)[:4000]))
            print(f"{run}: FAILED: {error}"[:6000], flush=True)
            continue
        done.append((run, outcome))
        counts = f"{outcome.acknowledged} acknowledged, {sum(outcome.duplicated.values())} repeated"
        took = f"{time.monotonic() - started:.0f} s"
        print(f"{run}: {counts}, {took}{''.join(f'; PROBLEM: {one}' for one in outcome.problems)}", flush=True)
    return done, failures


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.check_gateway_lossless", description=(__doc__ or "").split("\n\n", maxsplit=1)[0]
    )
    parser.add_argument("--records", type=int, default=600, help="each client's, in each run")
    parser.add_argument("--rounds", type=int, default=2, help="of each fault alone")
    parser.add_argument("--only", default="", metavar="TEXT", help="runs whose description has this in it")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR")
    options = parser.parse_args()
    before = machine()
    runs = [run for run in all_runs(options.records, options.rounds) if options.only in str(run)]
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in ("go", "classes"):
            (folder / name).mkdir()
        programs = Programs.build(kafka_jars(KAFKA), _go_programs(folder / "go"), folder / "classes")
        with running_cluster(KAFKA, folder / "kafka", passwords=USERS) as cluster:
            done, failures = _do_all(runs, cluster, programs, folder)
    found = {
        "command": f"python -m benchmarks.check_gateway_lossless --records {options.records} --rounds {options.rounds}",
        "machine": before,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "kafka": KAFKA,
        "clients": list(CLIENTS),
        "faults": [*BROKER_FAULTS, *GATEWAY_FAULTS],
        **report(done, failures),
    }
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "gateway-lossless.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    write_readme(options.results)
    return 1 if found["problems"] or any(one["problems"] for one in found["runs"]) else 0


if __name__ == "__main__":
    sys.exit(main())
