"""Charged sizes against an independent encoder (kio) for every version that it knows."""

import importlib
import io
import json
import string
from base64 import b64encode
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from kquota.pipeline.ingest.request_log.charged_size import fetch_charge, produce_charge, share_fetch_charge
from kquota.pipeline.ingest.request_log.line import FetchResponse, ProduceRequest, ShareFetchResponse

PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
SHARE_FETCH_VERSIONS = range(1, 3)

names = st.text(st.characters(blacklist_categories=["Cs"]), max_size=40)
topic_names = st.one_of(st.text(string.ascii_letters + "._-", min_size=1, max_size=249), names)
# Around the places where a variable-length integer grows by a byte.
record_sizes = st.one_of(
    st.none(), st.integers(0, 300), st.sampled_from([126, 127, 128, 16381, 16382, 16383, 16384, 70_000])
)
uuids = st.uuids(version=4)


def encoded_size(entity: Any) -> int:
    """Bytes of an entity as kio writes it."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getbuffer().nbytes


def schema(api: str, version: int, part: str) -> Any:
    return importlib.import_module(f"kio.schema.{api}.v{version}.{part}")


def decode(shape: type, body: dict[str, Any]) -> Any:
    return msgspec.json.decode(json.dumps(body).encode(), type=shape)


def records_json(size: int | None, as_base64: bool) -> dict[str, Any]:
    """A record field as the log has it: a size, or the bytes where Kafka used its default converter."""
    if size is None:
        return {"records": None}
    return {"records": b64encode(bytes(size)).decode()} if as_base64 else {"recordsSizeInBytes": size}


topics_of_records = st.lists(st.tuples(topic_names, uuids, st.lists(record_sizes, max_size=4)), max_size=3) | st.just(
    [("t", UUID(int=1), [7] * 130)]
)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@given(
    client_id=st.none() | names,
    transactional_id=st.none() | names,
    topics=topics_of_records | st.just([("t", UUID(int=1), [1])] * 127),
    as_base64=st.booleans(),
)
def test_produce_is_charged_header_and_body(
    version: int,
    client_id: str | None,
    transactional_id: str | None,
    topics: list[tuple[str, UUID, list[int | None]]],
    as_base64: bool,
) -> None:
    """A produce request is charged its frame without the four size bytes."""
    module = schema("produce", version, "request")
    by_id = version >= 13
    entity = module.ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout=timedelta(seconds=30),
        topic_data=tuple(
            module.TopicProduceData(
                **({"topic_id": topic_id} if by_id else {"name": name}),
                partition_data=tuple(
                    module.PartitionProduceData(index=index, records=None if size is None else bytes(size))
                    for index, size in enumerate(sizes)
                ),
            )
            for name, topic_id, sizes in topics
        ),
    )
    header = module.ProduceRequest.__header_schema__(
        request_api_key=0, request_api_version=version, correlation_id=1, client_id=client_id
    )
    request = decode(
        ProduceRequest,
        {
            "transactionalId": transactional_id,
            "acks": -1,
            "timeoutMs": 30000,
            "topicData": [
                {
                    **({"topicId": str(topic_id)} if by_id else {"name": name}),
                    "partitionData": [
                        {"index": index, **records_json(size, as_base64)} for index, size in enumerate(sizes)
                    ],
                }
                for name, topic_id, sizes in topics
            ],
        },
    )
    assert produce_charge(request, version, client_id) == encoded_size(header) + encoded_size(entity)


fetched_partitions = st.tuples(
    record_sizes,
    st.none() | st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=130),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@given(
    topics=st.lists(st.tuples(topic_names, uuids, st.lists(fetched_partitions, max_size=3)), max_size=3),
    endpoints=st.lists(st.tuples(names, st.none() | names), max_size=2),
    as_base64=st.booleans(),
)
def test_fetch_is_charged_four_and_the_body(
    version: int,
    topics: list[tuple[str, UUID, list[tuple[int | None, list[tuple[int, int]] | None, bool, bool, bool]]]],
    endpoints: list[tuple[str, str | None]],
    as_base64: bool,
) -> None:
    """A fetch is charged four bytes and its answer's body, with tagged fields where the answer has them."""
    module = schema("fetch", version, "response")
    by_id, tags = version >= 13, version >= 12
    endpoints = endpoints if version >= 16 else []
    entities, rows = [], []
    for name, topic_id, partitions in topics:
        partition_entities, partition_rows = [], []
        for index, (size, aborted, diverging, leader, snapshot) in enumerate(partitions):
            fields: dict[str, Any] = {
                "partition_index": index,
                "error_code": ErrorCode.none,
                "high_watermark": 5,
                "aborted_transactions": None
                if aborted is None
                else tuple(
                    module.AbortedTransaction(producer_id=producer, first_offset=offset) for producer, offset in aborted
                ),
                "records": None if size is None else bytes(size),
            }
            row: dict[str, Any] = {
                "partitionIndex": index,
                "errorCode": 0,
                "highWatermark": 5,
                "abortedTransactions": None
                if aborted is None
                else [{"producerId": producer, "firstOffset": offset} for producer, offset in aborted],
                **records_json(size, as_base64),
            }
            if tags and diverging:
                fields["diverging_epoch"] = module.EpochEndOffset(epoch=3, end_offset=4)
                row["divergingEpoch"] = {"epoch": 3, "endOffset": 4}
            if tags and leader:
                fields["current_leader"] = module.LeaderIdAndEpoch(leader_id=1, leader_epoch=4)
                row["currentLeader"] = {"leaderId": 1, "leaderEpoch": 4}
            if tags and snapshot:
                fields["snapshot_id"] = module.SnapshotId(end_offset=1, epoch=4)
                row["snapshotId"] = {"endOffset": 1, "epoch": 4}
            partition_entities.append(module.PartitionData(**fields))
            partition_rows.append(row)
        identity = {"topic_id": topic_id} if by_id else {"topic": name}
        entities.append(module.FetchableTopicResponse(**identity, partitions=tuple(partition_entities)))
        rows.append({**({"topicId": str(topic_id)} if by_id else {"topic": name}), "partitions": partition_rows})
    extra: dict[str, Any] = {}
    body: dict[str, Any] = {"throttleTimeMs": 0, "responses": rows}
    if endpoints:
        extra["node_endpoints"] = tuple(
            module.NodeEndpoint(node_id=1, host=host, port=9092, rack=rack) for host, rack in endpoints
        )
        body["nodeEndpoints"] = [{"nodeId": 1, "host": host, "port": 9092, "rack": rack} for host, rack in endpoints]
    if version >= 7:
        extra |= {"error_code": ErrorCode.none, "session_id": 7}
    entity = module.FetchResponse(throttle_time=timedelta(0), responses=tuple(entities), **extra)
    assert fetch_charge(decode(FetchResponse, body), version) == 4 + encoded_size(entity)


@pytest.mark.parametrize("version", SHARE_FETCH_VERSIONS)
@given(
    error=st.none() | names,
    topics=st.lists(
        st.tuples(uuids, st.lists(st.tuples(st.integers(0, 300), st.none() | names, st.integers(0, 130)), max_size=2)),
        max_size=2,
    ),
    endpoints=st.lists(st.tuples(names, st.none() | names), max_size=2),
    as_base64=st.booleans(),
)
def test_share_fetch_is_charged_four_and_the_body(
    version: int,
    error: str | None,
    topics: list[tuple[UUID, list[tuple[int, str | None, int]]]],
    endpoints: list[tuple[str, str | None]],
    as_base64: bool,
) -> None:
    """A share fetch is charged like a fetch; its records stand in the log as bytes."""
    module = schema("share_fetch", version, "response")
    entities, rows = [], []
    for topic_id, partitions in topics:
        entities.append(
            module.ShareFetchableTopicResponse(
                topic_id=topic_id,
                partitions=tuple(
                    module.PartitionData(
                        partition_index=0,
                        error_code=ErrorCode.none,
                        error_message=message,
                        acknowledge_error_code=0,
                        acknowledge_error_message=message,
                        current_leader=module.LeaderIdAndEpoch(leader_id=1, leader_epoch=2),
                        records=bytes(size),
                        acquired_records=(module.AcquiredRecords(first_offset=1, last_offset=2, delivery_count=1),)
                        * acquired,
                    )
                    for size, message, acquired in partitions
                ),
            )
        )
        rows.append(
            {
                "topicId": str(topic_id),
                "partitions": [
                    {
                        "partitionIndex": 0,
                        "errorMessage": message,
                        "acknowledgeErrorMessage": message,
                        "acquiredRecords": [{"firstOffset": 1, "lastOffset": 2, "deliveryCount": 1}] * acquired,
                        **records_json(size, as_base64),
                    }
                    for size, message, acquired in partitions
                ],
            }
        )
    entity = module.ShareFetchResponse(
        throttle_time=timedelta(0),
        error_code=ErrorCode.none,
        error_message=error,
        acquisition_lock_timeout=timedelta(0),
        responses=tuple(entities),
        node_endpoints=tuple(
            module.NodeEndpoint(node_id=1, host=host, port=9092, rack=rack) for host, rack in endpoints
        ),
    )
    response = decode(
        ShareFetchResponse,
        {
            "errorMessage": error,
            "responses": rows,
            "nodeEndpoints": [{"host": host, "rack": rack} for host, rack in endpoints],
        },
    )
    assert share_fetch_charge(response, version) == 4 + encoded_size(entity)


def test_a_partition_without_size_is_an_error_and_not_zero() -> None:
    """What the line does not say is never read as nothing."""
    request = decode(ProduceRequest, {"acks": 1, "topicData": [{"name": "t", "partitionData": [{"index": 0}]}]})
    with pytest.raises(ValueError, match="recordsSizeInBytes"):
        produce_charge(request, 9, "c")
