"""The sample capture holds what the demo and the other tests rely on, counted from its raw log with nothing but json.

Sizes are computed here once more, from Kafka's message formats, and held against what the clients themselves counted
and against kio's encoder.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v18.response import FetchableTopicResponse, FetchResponse, PartitionData
from kio.schema.produce.v13.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.serial import entity_writer
from kio.static.primitive import i32Timedelta

EXAMPLES = Path(__file__).parents[2] / "examples"
SAMPLE = EXAMPLES / "capture" / "sample"
WINDOW_S = 11
SIZE_BYTES = 4  # in front of each frame
RESPONSE_HEADER_BYTES = 5
MUTATIONS = {"CREATE_TOPICS", "CREATE_PARTITIONS", "DELETE_TOPICS"}

NO_TIME = i32Timedelta.parse(timedelta(0))

Client = tuple[str, str]
Quotas = dict[tuple[tuple[str, str | None], ...], dict[str, float]]


def varint_bytes(number: int) -> int:
    return max((number.bit_length() + 6) // 7, 1)


def records_bytes(size: int) -> int:
    return varint_bytes(size + 1) + size


def produce_bytes(header: dict[str, Any], body: dict[str, Any]) -> int:
    """The frame of a Produce v13 request without its size."""
    total = 2 + 2 + 4 + 2 + len(header["clientId"].encode()) + 1  # request header v2
    total += 1 + len((body["transactionalId"] or "").encode()) + 2 + 4 + varint_bytes(len(body["topicData"]) + 1) + 1
    for topic in body["topicData"]:
        total += 16 + varint_bytes(len(topic["partitionData"]) + 1) + 1
        total += sum(4 + records_bytes(partition["recordsSizeInBytes"]) + 1 for partition in topic["partitionData"])
    return total


def fetch_bytes(body: dict[str, Any]) -> int:
    """The body of a Fetch v18 response without tagged fields."""
    total = 4 + 2 + 4 + varint_bytes(len(body["responses"]) + 1) + 1
    for topic in body["responses"]:
        total += 16 + varint_bytes(len(topic["partitions"]) + 1) + 1
        for partition in topic["partitions"]:
            total += 4 + 2 + 8 + 8 + 8 + varint_bytes(len(partition["abortedTransactions"] or ()) + 1) + 4
            total += (
                17 * len(partition["abortedTransactions"] or ()) + records_bytes(partition["recordsSizeInBytes"]) + 1
            )
    return total


@dataclass
class Sample:
    """What the raw log says, forwarded duplicates left out."""

    lines: int = 0
    forwarded: int = 0
    start_s: float = math.inf
    end_s: float = 0.0
    requests: Counter[tuple[Client, str]] = field(default_factory=Counter)
    throttled: Counter[tuple[Client, str]] = field(default_factory=Counter)
    charged: Counter[tuple[Client, str]] = field(default_factory=Counter)
    # Bytes on the wire, the 4 size bytes included, of what is sent by producers and received by fetchers.
    wire: Counter[tuple[Client, str]] = field(default_factory=Counter)
    per_second: defaultdict[tuple[Client, str], Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    muted: defaultdict[tuple[Client, str], set[int]] = field(default_factory=lambda: defaultdict(set))
    some: list[dict[str, Any]] = field(default_factory=list)  # each 97th line of produce and fetch


def raw_lines() -> Iterator[tuple[float, dict[str, Any]]]:
    with gzip.open(SAMPLE / "kafka-request.log.gz", "rb") as log:
        for line in log:
            end_s = datetime.fromisoformat(line[1:24].decode()).replace(tzinfo=UTC).timestamp()
            assert line.endswith(b" (kafka.request.logger)\n")
            yield end_s, json.loads(line[line.index(b"request:{") + 8 : line.rindex(b" (kafka.request.logger)")])


@pytest.fixture(scope="module")
def sample() -> Sample:
    sample = Sample()
    for end_s, line in raw_lines():
        sample.lines += 1
        if line["isForwarded"]:
            sample.forwarded += 1
            continue
        sample.start_s = min(sample.start_s, end_s)
        sample.end_s = max(sample.end_s, end_s)
        header, request, response = line["requestHeader"], line["request"], line["response"] or {}
        api = header["requestApiKeyName"]
        key = ((line["principal"].removeprefix("User:"), header["clientId"]), api)
        throttle_ms = max(line["throttleTimeMs"], response.get("throttleTimeMs", 0))
        sample.requests[key] += 1
        sample.throttled[key] += throttle_ms > 0
        if api == "PRODUCE":
            assert header["requestApiVersion"] == 13
            charged = produce_bytes(header, request)
            sample.wire[key] += SIZE_BYTES + charged
        elif api == "FETCH":
            assert header["requestApiVersion"] == 18
            size = fetch_bytes(response)
            charged = 0 if throttle_ms else SIZE_BYTES + size
            sample.wire[key] += SIZE_BYTES + RESPONSE_HEADER_BYTES + size
        else:
            continue
        sample.charged[key] += charged
        sample.per_second[key][int(end_s)] += charged
        if throttle_ms:
            sample.muted[key] |= set(range(int(end_s), int(end_s + throttle_ms / 1000) + 1))
        if sample.lines % 97 == 0:
            sample.some.append(line)
    return sample


@pytest.fixture(scope="module")
def quotas() -> Quotas:
    listed = yaml.safe_load((SAMPLE / "quotas.yaml").read_text(encoding="utf-8"))["quotas"]
    return {tuple(sorted(one["entity"].items())): one["values"] for one in listed}


@pytest.fixture(scope="module")
def clients() -> list[dict[str, Any]]:
    counted: list[dict[str, Any]] = json.loads((SAMPLE / "clients.json").read_text(encoding="utf-8"))
    return counted


def test_enough_of_everything_is_throttled(sample: Sample) -> None:
    by_api: Counter[str] = Counter()
    for (_, api), count in sample.throttled.items():
        by_api["MUTATION" if api in MUTATIONS else api] += count
    assert by_api["PRODUCE"] >= 300
    assert by_api["FETCH"] >= 100
    assert by_api["MUTATION"] >= 20


def test_it_is_small_and_long_enough(sample: Sample) -> None:
    assert sum(path.stat().st_size for path in SAMPLE.iterdir()) <= 4_000_000
    assert 30_000 <= sample.lines <= 80_000
    assert sample.end_s - sample.start_s >= 170
    assert sample.forwarded > 0


def test_the_example_quotas_are_those_of_the_sample() -> None:
    assert (EXAMPLES / "quotas.yaml").read_bytes() == (SAMPLE / "quotas.yaml").read_bytes()


def test_a_meter_is_shared_by_two_users(sample: Sample, quotas: Quotas) -> None:
    """Both users of the client id are throttled by its limit, and no rule names either of them."""
    assert {"producer_byte_rate", "consumer_byte_rate"} <= set(quotas[(("client-id", "etl"),)])
    assert not any(dict(entity).get("user") in ("anna", "ben") for entity in quotas)
    limited = ("producer_byte_rate", "consumer_byte_rate")
    assert not any(dict(entity).get("user", "") is None and set(limited) & set(quotas[entity]) for entity in quotas)
    for user in ("anna", "ben"):
        assert sample.throttled[(user, "etl"), "PRODUCE"] > 0
        assert sample.throttled[(user, "etl"), "FETCH"] > 0


def test_client_ids_of_one_user_share_a_meter(sample: Sample) -> None:
    assert all(sample.throttled[("search", f"indexer-{number}"), "PRODUCE"] > 0 for number in (1, 2, 3))


def test_a_meter_is_bound_for_a_part_of_the_time(sample: Sample, quotas: Quotas) -> None:
    """Over 95 % of its limit in the last 11 seconds, or muted, in a fifth to four fifths of all seconds."""
    key = (("billing", "invoices"), "PRODUCE")
    limit = quotas[(("user", "billing"),)]["producer_byte_rate"]
    seconds = range(int(sample.start_s), int(sample.end_s) + 1)
    bound = 0
    for second in seconds:
        amount = sum(sample.per_second[key][at] for at in range(second - WINDOW_S + 1, second + 1))
        bound += amount / WINDOW_S > 0.95 * limit or second in sample.muted[key]
    assert 0.2 <= bound / len(seconds) <= 0.8


def test_a_rule_is_overridden_by_a_narrower_one(sample: Sample, quotas: Quotas) -> None:
    wide = quotas[(("user", "clickstream"),)]["producer_byte_rate"]
    narrow = quotas[(("client-id", "web"), ("user", "clickstream"))]["producer_byte_rate"]
    key = (("clickstream", "web"), "PRODUCE")
    mean = sample.charged[key] / (sample.end_s - sample.start_s)
    assert 0.8 * narrow < mean < 1.2 * narrow < wide
    assert sample.throttled[key] > 0


def test_a_limit_on_request_time_alone_throttles(sample: Sample, quotas: Quotas) -> None:
    assert set(quotas[(("user", "analyst"),)]) == {"request_percentage"}
    assert sum(count for (client, _), count in sample.throttled.items() if client[0] == "analyst") >= 100
    assert set(quotas[(("user", "iot"),)]) == {"producer_byte_rate", "request_percentage"}
    assert sample.throttled[("iot", "gateway"), "PRODUCE"] > 0


def test_unlimited_and_awkward_clients_are_there(sample: Sample) -> None:
    for client in (("metrics", "agent"), ("metrics", "agent-quiet"), ("CN=Bücher,O=a b", "price list, daily=1")):
        assert sample.requests[client, "PRODUCE"] > 500
        assert sample.throttled[client, "PRODUCE"] == 0


def test_what_is_throttled_in_the_log_is_throttled_in_jmx(sample: Sample) -> None:
    """A meter of bytes with throttled requests has a throttle time in the broker's metrics."""
    throttled: set[str] = set()
    with (SAMPLE / "jmx.csv").open(encoding="utf-8", newline="") as rows:
        for row in csv.DictReader(rows):
            if row["attribute"] == "throttle-time" and row["value"] != "NaN":
                throttled.add(row["mbean"].removeprefix("kafka.server:"))
    assert {
        "type=Produce,user=billing",
        "type=Produce,user=clickstream,client-id=web",
        "type=Produce,user=search",
        "type=Produce,client-id=etl",
        "type=Fetch,client-id=etl",
        "type=Fetch,user=ml,client-id=training",
        "type=Fetch,user=ml,client-id=notebook",
        "type=Request,user=analyst",
        "type=Request,user=iot",
    } <= throttled
    calm = ("user=shop", "user=reports", "user=metrics", "client-id=agent", "user=CN")
    assert not [bean for bean in throttled for name in calm if name in bean]


def test_what_the_log_says_is_what_the_clients_counted(sample: Sample, clients: list[dict[str, Any]]) -> None:
    """Per client, the bytes of its metered requests or answers agree within 0.5 % with all that its sockets carried.

    Besides what is charged that is 4 bytes for each request, 5 for each answer, and throttled answers in full.
    """
    sent: Counter[tuple[Client, str]] = Counter()
    for counted in clients:
        kind = {"produce": ("PRODUCE", "outgoing-byte-total"), "fetch": ("FETCH", "incoming-byte-total")}
        if counted["kind"] in kind:
            api, total = kind[counted["kind"]]
            sent[(counted["user"], counted["client_id"]), api] += int(counted["metrics"][total])
    assert len(sent) == 17
    for key, own_count in sent.items():
        assert sample.wire[key] == pytest.approx(own_count, rel=0.005), key
        if key[1] == "PRODUCE":
            assert sample.wire[key] == sample.charged[key] + SIZE_BYTES * sample.requests[key]


def test_every_request_of_a_client_is_in_the_log(sample: Sample, clients: list[dict[str, Any]]) -> None:
    counted: Counter[Client] = Counter()
    for client in clients:
        counted[client["user"], client["client_id"]] += int(client["metrics"]["request-total"])
    logged: Counter[Client] = Counter()
    for (name, _), requests in sample.requests.items():
        logged[name] += requests
    for name, requests in counted.items():
        # A client asks a little more when it is closed, after it has counted.
        assert requests <= logged[name] <= requests + 8, name


def test_sizes_are_those_of_an_independent_encoder(sample: Sample) -> None:
    apis = Counter(line["requestHeader"]["requestApiKeyName"] for line in sample.some)
    assert apis["PRODUCE"] > 50
    assert apis["FETCH"] > 20
    for line in sample.some:
        header, request, response = line["requestHeader"], line["request"], line["response"] or {}
        buffer = io.BytesIO()
        if header["requestApiKeyName"] == "PRODUCE":
            entity_writer(ProduceRequest)(buffer, produce_request(request))
            assert produce_bytes(header, request) == len(buffer.getvalue()) + 11 + len(header["clientId"].encode())
        else:
            entity_writer(FetchResponse)(buffer, fetch_response(response))
            assert fetch_bytes(response) == len(buffer.getvalue())


def produce_request(body: dict[str, Any]) -> Any:
    topics = tuple(
        TopicProduceData(
            topic_id=None,
            partition_data=tuple(
                PartitionProduceData(index=one["index"], records=bytes(one["recordsSizeInBytes"]))  # type: ignore[arg-type]
                for one in topic["partitionData"]
            ),
        )
        for topic in body["topicData"]
    )
    return ProduceRequest(
        transactional_id=body["transactionalId"],
        acks=body["acks"],
        timeout=NO_TIME,
        topic_data=topics,
    )


def fetch_response(body: dict[str, Any]) -> Any:
    topics = tuple(
        FetchableTopicResponse(
            topic_id=None,
            partitions=tuple(
                PartitionData(
                    partition_index=one["partitionIndex"],
                    error_code=ErrorCode.none,
                    high_watermark=one["highWatermark"],
                    last_stable_offset=one["lastStableOffset"],
                    log_start_offset=one["logStartOffset"],
                    aborted_transactions=None,
                    preferred_read_replica=one["preferredReadReplica"],
                    records=bytes(one["recordsSizeInBytes"]),  # type: ignore[arg-type]
                )
                for one in topic["partitions"]
            ),
        )
        for topic in body["responses"]
    )
    return FetchResponse(
        throttle_time=NO_TIME,
        error_code=ErrorCode.none,
        session_id=body["sessionId"],
        responses=topics,
        node_endpoints=(),
    )
