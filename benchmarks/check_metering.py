"""Not a timing but a check: random traces to Kafka 4.3.0's own quota managers and to our engine, answered the same.

Meters, limits, values, throttle times and rejections are compared after every record, all metrics at the end and in
between; `tests/kit/metering_traces.py` has the classes of traces. Ends with 1 where anything differs. Needs a JDK,
fetches Kafka's jars.

Usage: ``python -m benchmarks.check_metering [--traces 10000] [--seed 1]``
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from examples.capture.jars import kafka_jars
from kquota.metering.replay import replay
from tests.kit.kafka import NEW
from tests.kit.metering_differential import compare, metering_judge
from tests.kit.metering_traces import metering_traces


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check_metering", description=__doc__.split("\n\n")[0])
    parser.add_argument("--traces", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        metering_judge(kafka_jars(NEW), Path(folder) / "errors") as judge,
    ):
        report = compare(metering_traces(options.traces, options.seed), judge, replay)
    print(f"Apache Kafka {NEW} and kquota, seed {options.seed}:")
    print(report)
    return 1 if report.differences or report.empty() else 0


if __name__ == "__main__":
    sys.exit(main())
