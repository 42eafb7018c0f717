"""The capture works against real brokers: it sets and reads back limits, and saves what it promises."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from examples.capture.broker import Broker
from examples.capture.capture import canonical, capture
from tests.kit.kafka import NEW, OLD, PASSWORDS, needs_compiler, needs_kafka
from tests.real.raw_kafka import API_VERSIONS, Connection
from tests.real.record_golden import until

# Those that bind nobody are there for their names, which must come back as they were set.
LIMITS: list[dict[str, Any]] = [
    {"entity": {"user": "alice"}, "values": {"consumer_byte_rate": 20_000_000, "producer_byte_rate": 50_000}},
    {"entity": {"client-id": "storm"}, "values": {"controller_mutation_rate": 0.5}},
    {"entity": {"client-id": "a, b", "user": "Zoë"}, "values": {"consumer_byte_rate": 100_000}},
    {"entity": {"user": "CN=Bücher, client-id 'x'", "client-id": None}, "values": {"request_percentage": 12.5}},
    {"entity": {"ip": None}, "values": {"connection_creation_rate": 1_000}},
]
WORKLOAD: dict[str, Any] = {
    "topics": {"t": 1},
    "prefill": {"t": 1_000_000},
    "clients": [
        {"user": "alice", "client_id": "greedy", "kind": "produce", "topic": "t"},
        {"user": "Zoë", "client_id": "a, b", "kind": "fetch", "topic": "t", "rereads": 500_000},
        {"user": "bob", "client_id": "storm", "kind": "create-topics", "topic": "made"},
    ],
}


def test_the_shared_broker_is_one_and_knows_its_users(broker: Callable[[str], Broker]) -> None:
    running = broker(OLD)
    assert broker(OLD) is running
    with Connection(running.sasl, user="bob", password=PASSWORDS["bob"]) as connection:
        connection.request(API_VERSIONS, 0, {}, client_id="kit")
        correlation_id = connection.exchanges[-1].correlation_id

    def logged() -> bool:
        lines = running.request_log.read_text(encoding="utf-8").splitlines()
        return any(f'"correlationId":{correlation_id},' in line and '"User:bob"' in line for line in lines)

    until(logged, "the line of bob's request")


def test_a_capture_holds_what_the_clients_did_and_what_the_broker_told_them(tmp_path: Path) -> None:
    needs_kafka(NEW)
    needs_compiler()
    out = tmp_path / "out"
    capture(out, version=NEW, seconds=8, seed=3, limits=LIMITS, workload=WORKLOAD, warm_up_s=1)
    saved = yaml.safe_load((out / "quotas.yaml").read_text(encoding="utf-8"))["quotas"]
    assert sorted(map(canonical, saved)) == sorted(map(canonical, LIMITS))
    lines = gzip.decompress((out / "kafka-request.log.gz").read_bytes()).decode().removesuffix("\n").split("\n")
    throttled = set()
    for line in lines:
        request = json.loads(line[line.index("request:{") + 8 : line.rindex("}") + 1])
        if max(request["throttleTimeMs"], (request["response"] or {}).get("throttleTimeMs", 0)) > 0:
            throttled.add((request["principal"], request["requestHeader"]["clientId"]))
    assert throttled == {("User:alice", "greedy"), ("User:Zoë", "a, b"), ("User:bob", "storm")}
    counted = {(one["user"], one["client_id"]): one for one in json.loads((out / "clients.json").read_text("utf-8"))}
    assert counted["alice", "greedy"]["acknowledged"] == counted["alice", "greedy"]["records"] > 0
    assert counted["Zoë", "a, b"]["records"] > 0
    assert counted["bob", "storm"]["outcomes"]["create-throttled"] > 0
    beans = (out / "jmx.csv").read_text(encoding="utf-8").splitlines()
    assert beans[0] == "epoch_ms,mbean,attribute,value"
    assert any('"kafka.server:type=Produce,user=alice",throttle-time,' in row for row in beans)
    assert json.loads((out / "manifest.json").read_text(encoding="utf-8"))["kafka"] == NEW
