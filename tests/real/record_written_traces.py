"""Record what Kafka's own quota managers answer to the traces of ``tests/kit/written_traces.py``.

    python -m tests.real.record_written_traces

writes ``tests/data/written_traces.jsonl``. Needs a JDK, fetches Kafka's jars.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from examples.capture.jars import kafka_jars
from tests.kit.kafka import NEW
from tests.kit.metering_differential import metering_judge
from tests.kit.written_traces import GOLDEN, WRITTEN_TRACES


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        metering_judge(kafka_jars(NEW), Path(folder) / "errors") as judge,
    ):
        lines = [
            json.dumps({"trace": name, "answers": judge.ask(trace.line())}) for name, trace in WRITTEN_TRACES.items()
        ]
    GOLDEN.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} traces: {GOLDEN}")


if __name__ == "__main__":
    main()
