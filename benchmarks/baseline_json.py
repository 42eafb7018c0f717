"""The baseline a Python programmer writes in an afternoon: one process, `json.loads`, dictionaries.

It reads Kafka's JSON request log and writes the same sums as ``kquota analyze``: what each (user, client id) was
charged by quota key, in all and by second. Nothing of kquota is used. It covers the versions that `generate_log`
writes (Produce 9-13, Fetch 12-18) and holds all cells in memory.

Usage: ``python -m benchmarks.baseline_json OUT FILE...``

OUT receives ``clients.csv`` (user, client_id, key and the sums), ``usage.csv`` (the same by second) and
``summary.json`` (lines, good, rejected).
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

__all__ = ["charged", "fetch_bytes", "produce_bytes", "read", "write"]

SUMS = ["amount", "requests", "throttled_requests", "throttle_ms"]
PREFIX_BYTES = 50  # "[2026-01-02 03:04:05,678] DEBUG Completed request:"
SUFFIX = b" (kafka.request.logger)"
MUTATIONS = (19, 20, 37)

Client = tuple[str, str]
Cells = dict[tuple[int, str, str, str], list[float]]


def uvarint_bytes(value: int) -> int:
    size = 1
    while value > 127:
        value >>= 7
        size += 1
    return size


def compact_bytes(size: int | None) -> int:
    """A compact string or compact bytes of `size` bytes; None is null, which takes one byte."""
    return 1 if size is None else uvarint_bytes(size + 1) + size


def produce_bytes(header: dict[str, Any], request: dict[str, Any]) -> int:
    """Size of the request frame without its four size bytes (Produce 9-13)."""
    total = 2 + 2 + 4 + 2 + len((header["clientId"] or "").encode()) + 1
    transactional_id = request["transactionalId"]
    total += compact_bytes(None if transactional_id is None else len(transactional_id.encode())) + 2 + 4
    topics = request["topicData"]
    total += uvarint_bytes(len(topics) + 1) + 1
    for topic in topics:
        total += 16 if "topicId" in topic else compact_bytes(len(topic["name"].encode()))
        partitions = topic["partitionData"]
        total += uvarint_bytes(len(partitions) + 1) + 1
        for partition in partitions:
            total += 4 + compact_bytes(partition["recordsSizeInBytes"]) + 1
    return total


def fetch_bytes(response: dict[str, Any]) -> int:
    """Four and the size of the response's body (Fetch 12-18, partitions without tagged fields)."""
    topics = response["responses"]
    total = 4 + 4 + 2 + 4 + uvarint_bytes(len(topics) + 1) + 1
    for topic in topics:
        total += 16 if "topicId" in topic else compact_bytes(len(topic["topic"].encode()))
        partitions = topic["partitions"]
        total += uvarint_bytes(len(partitions) + 1) + 1
        for partition in partitions:
            aborted = partition["abortedTransactions"]
            total += 4 + 2 + 8 + 8 + 8 + (1 if aborted is None else uvarint_bytes(len(aborted) + 1) + 17 * len(aborted))
            total += 4 + compact_bytes(partition["recordsSizeInBytes"]) + 1
    return total


def is_follower(request: dict[str, Any]) -> bool:
    replica_id: int = request.get("replicaId", request.get("replicaState", {}).get("replicaId", -1))
    return replica_id >= 0


def charged(entry: dict[str, Any]) -> Iterator[tuple[str, float, int]]:
    """(key, amount, throttle ms) of each quota that one logged request counts on; none for brokers' own requests."""
    header, request = entry["requestHeader"], entry["request"]
    if entry["isForwarded"]:
        return
    throttle_ms = entry["throttleTimeMs"]
    percent_seconds = entry["localTimeMs"] / 10
    api_key = header["requestApiKey"]
    if api_key == 0:
        yield "producer_byte_rate", produce_bytes(header, request), throttle_ms
        if request["acks"] == 0:
            return  # exempt from request_percentage
        throttle_ms = 0
    elif api_key == 1:
        if is_follower(request):
            return
        yield "consumer_byte_rate", 0 if throttle_ms > 0 else fetch_bytes(entry["response"]), throttle_ms
        throttle_ms = 0
    elif api_key in MUTATIONS:
        response = entry["response"]
        partitions = sum(max(topic["numPartitions"], 0) for topic in response["topics"]) if api_key == 19 else 0
        yield "controller_mutation_rate", partitions, response["throttleTimeMs"]
        throttle_ms = 0
    yield "request_percentage", percent_seconds, throttle_ms


def read(paths: Iterable[Path]) -> tuple[Cells, dict[str, int]]:
    """Sums by (epoch second, user, client id, key), and how many lines were read and could not be used."""
    cells: Cells = {}
    starts_ms: dict[bytes, int] = {}
    lines = rejected = 0
    for path in paths:
        with cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb") as stream:
            for raw in stream:
                lines += 1
                line = raw.rstrip(b"\r\n")
                try:
                    if not line.endswith(SUFFIX):
                        raise ValueError("not a line of kafka.request.logger")
                    entry = json.loads(line[PREFIX_BYTES : -len(SUFFIX)])
                    written = line[1:20]
                    if written not in starts_ms:
                        start = datetime.fromisoformat(written.decode("ascii")).replace(tzinfo=UTC)
                        starts_ms[written] = int(start.timestamp()) * 1000
                    # Charged before the answer was queued and sent; the log has the time after that.
                    end_ms = starts_ms[written] + int(line[21:24])
                    second = int((end_ms - entry["sendTimeMs"] - entry["responseQueueTimeMs"]) // 1000)
                    user = entry["principal"].partition(":")[2]
                    client_id = entry["requestHeader"]["clientId"] or ""
                    counted = list(charged(entry))
                except (ValueError, KeyError, TypeError, AttributeError):
                    rejected += 1
                    continue
                for key, amount, throttle_ms in counted:
                    cell = cells.get((second, user, client_id, key))
                    if cell is None:
                        cell = cells[second, user, client_id, key] = [0, 0, 0, 0]
                    cell[0] += amount
                    cell[1] += 1
                    if throttle_ms > 0:
                        cell[2] += 1
                        cell[3] += throttle_ms
    return cells, {"lines": lines, "good": lines - rejected, "rejected": rejected}


def write(out: Path, cells: Cells, counts: dict[str, int]) -> None:
    """Write the cells, their sums by client, and the counts."""
    out.mkdir(parents=True, exist_ok=True)
    clients: dict[tuple[str, str, str], list[float]] = {}
    with (out / "usage.csv").open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        rows.writerow(["cell_start_ms", "user", "client_id", "key", *SUMS])
        for (second, user, client_id, key), sums in cells.items():
            rows.writerow([second * 1000, user, client_id, key, *sums])
            total = clients.setdefault((user, client_id, key), [0, 0, 0, 0])
            for column, value in enumerate(sums):
                total[column] += value
    with (out / "clients.csv").open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        rows.writerow(["user", "client_id", "key", *SUMS])
        rows.writerows([*client, *sums] for client, sums in sorted(clients.items()))
    (out / "summary.json").write_text(json.dumps(counts) + "\n", encoding="utf-8")


def main() -> int:
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    write(Path(sys.argv[1]), *read(Path(name) for name in sys.argv[2:]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
