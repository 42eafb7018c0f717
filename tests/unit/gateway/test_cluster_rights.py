"""What a client may do, as brokers of each age say it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

import pytest

from kquota.errors import KafkaErrorCode, ProtocolError
from kquota.gateway.quotas.cluster_rights import KEPT_S, AclOperation, ClusterRights
from kquota.wire.apis import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    METADATA,
    read_header,
    response_parts,
)
from kquota.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kquota.wire.messages.describe_cluster import DescribeClusterResponse
from kquota.wire.messages.metadata import MetadataBroker, MetadataResponse

DESCRIBE, ALTER = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
EVERYTHING = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12
"""As a broker without an authorizer shows it: all that there is on a cluster."""


class Broker:
    """Speaks these versions, and shows these rights."""

    def __init__(self, operations: int, **spoken: tuple[int, int]) -> None:
        self.operations = operations
        self.error_code = KafkaErrorCode.NONE
        keys = {"api_versions": 18, "metadata": 3, "describe_cluster": 60}
        self.spoken = {keys[name]: versions for name, versions in {"api_versions": (0, 4), **spoken}.items()}
        self.asked: list[tuple[int, int]] = []
        self.correlation_ids_off = 0

    async def ask(self, frame: bytes) -> bytes:
        header, _ = read_header(frame[4:])
        key, version = header.api_key, header.api_version
        self.asked.append((key, version))
        first, last = self.spoken[key]
        assert first <= version <= last, "a broker closes the connection"
        api, body = self._answer(key)
        parts = response_parts(api, version, header.correlation_id + self.correlation_ids_off, body)
        return b"".join(parts)[4:]

    def _answer(self, key: int) -> tuple[Any, Any]:
        if key == 18:
            return API_VERSIONS, ApiVersionsResponse(0, [ApiVersion(api, *both) for api, both in self.spoken.items()])
        if key == 60:
            answer = DescribeClusterResponse(
                0, self.error_code, None, cluster_id="c", cluster_authorized_operations=self.operations
            )
            return DESCRIBE_CLUSTER, answer
        brokers = [MetadataBroker(1, "b1", 9092, "r")]
        return METADATA, MetadataResponse(0, brokers, "c", 1, [], cluster_authorized_operations=self.operations)


T = TypeVar("T")


def allowed(rights: ClusterRights, broker: Broker, *, now_s: float = 0.0) -> set[AclOperation]:
    async def found() -> set[AclOperation]:
        return {one for one in AclOperation if await rights.allows(one, broker.ask, now_s)}

    return run(found())


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        (EVERYTHING, {DESCRIBE, ALTER}),
        (1 << 8 | 1 << 10, {DESCRIBE}),
        (1 << 8 | 1 << 11, {ALTER}),
        (1 << 8, set()),
        (0, set()),
        (-(2**31), set()),
    ],
)
def test_the_broker_says_what_is_allowed(operations: int, expected: set[AclOperation]) -> None:
    """None is what it shows to those who may not describe the cluster; the last one is that it was not asked for."""
    broker = Broker(operations, describe_cluster=(0, 1))
    assert allowed(ClusterRights(), broker) == expected
    assert broker.asked == [(18, 0), (60, 1)]


@pytest.mark.parametrize(
    ("spoken", "asked"),
    [
        ({"metadata": (0, 13), "describe_cluster": (0, 2)}, (60, 2)),
        ({"metadata": (0, 14), "describe_cluster": (0, 9)}, (60, 2)),
        ({"metadata": (0, 9)}, (3, 9)),
        ({"metadata": (0, 8)}, (3, 8)),
        ({"metadata": (0, 10)}, (3, 10)),
    ],
)
def test_it_is_asked_in_the_latest_version_that_both_know(
    spoken: dict[str, tuple[int, int]], asked: tuple[int, int]
) -> None:
    broker = Broker(EVERYTHING, **spoken)
    assert allowed(ClusterRights(), broker) == {DESCRIBE, ALTER}
    assert broker.asked == [(18, 0), asked]


def test_nothing_is_allowed_where_the_broker_cannot_say() -> None:
    failing = Broker(EVERYTHING, describe_cluster=(0, 2))
    failing.error_code = KafkaErrorCode.UNKNOWN_SERVER_ERROR
    for broker in (Broker(EVERYTHING, metadata=(0, 7)), Broker(EVERYTHING, metadata=(11, 13)), failing):
        assert allowed(ClusterRights(), broker) == set()


def test_the_answer_is_kept_for_a_short_time() -> None:
    broker = Broker(EVERYTHING, describe_cluster=(0, 2))
    rights = ClusterRights()
    assert allowed(rights, broker, now_s=100.0) == {DESCRIBE, ALTER}
    broker.operations = 0
    assert allowed(rights, broker, now_s=100.0 + KEPT_S - 0.1) == {DESCRIBE, ALTER}
    assert allowed(rights, broker, now_s=100.0 + KEPT_S) == set()
    assert broker.asked == [(18, 0), (60, 2), (60, 2)]


def test_an_answer_to_something_else_is_no_permission() -> None:
    broker = Broker(EVERYTHING, describe_cluster=(0, 2))
    broker.correlation_ids_off = 1
    with pytest.raises(ProtocolError, match="answered request 1"):
        allowed(ClusterRights(), broker)


def test_a_broker_that_goes_is_not_a_broker_that_allows() -> None:
    async def ask(_frame: bytes) -> bytes:
        raise ConnectionResetError

    async def work() -> None:
        asking: Awaitable[bool] = ClusterRights().allows(DESCRIBE, ask, 0.0)
        await asking

    with pytest.raises(ConnectionResetError):
        run(work())
