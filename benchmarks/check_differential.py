"""Not a timing but a check: random requests to a real Apache Kafka 4.3.0 and to our server, answered the same.

Error codes, messages, entities and values are compared after every request, and all quotas after every alteration;
`tests/kit/quota_requests.py` has the classes of requests. Ends with 1 where anything differs.

Usage: ``python -m benchmarks.check_differential [--requests 10000] [--seed 1]``
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import structlog

from examples.capture.broker import running_broker
from kquota.stores import open_store
from tests.kit.differential import compare
from tests.kit.kafka import NEW
from tests.kit.quota_requests import quota_requests
from tests.kit.quota_server import running_server


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.check_differential", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    # Hundreds of connections are closed because of what they sent, as they should be.
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    with (
        tempfile.TemporaryDirectory() as folder,
        running_broker(NEW, Path(folder) / "kafka", passwords={}, log_requests=False) as broker,
        open_store(f"sqlite:///{folder}/quotas.db") as store,
        running_server(store) as ours,
    ):
        report = compare(quota_requests(options.requests, options.seed), broker.plaintext, str(ours))
    print(f"Apache Kafka {NEW} and kquota, seed {options.seed}:")
    print(report)
    return 1 if report.differences or report.empty_classes() else 0


if __name__ == "__main__":
    sys.exit(main())
