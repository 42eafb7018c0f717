"""kafka-python's raw messages, in both versions, get the same answers from our server and from a real Kafka."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    DescribeClusterRequest,
    DescribeUserScramCredentialsRequest,
)

from tests.real.both_servers import Server, assert_same_answers
from tests.real.client_script import ANY, DEFAULT, EXACT, QUESTIONS, Question, alter, changes, describe, reads

# What clients with an interface of their own cannot ask.
RAW_QUESTIONS = [
    describe(("user", EXACT, None)),
    describe(("user", DEFAULT, "carol")),
    describe(("user", ANY, "carol")),
    describe(("user", 3, None)),
    describe(("user", -1, None)),
    describe(("ip", 3, None), ("group", EXACT, None)),
    alter(
        {
            "entity": [{"type": "user", "name": "first"}, {"type": "user", "name": "second"}],
            "ops": [{"key": "producer_byte_rate", "value": "1"}],
        }
    ),
    describe(),
]


@pytest.mark.parametrize("version", [0, 1])
def test_raw_messages_get_the_same_answers(both: tuple[Server, Server], version: int) -> None:
    """Every field of them."""

    def prepared(question: Question) -> Any:
        if changes(question):
            return _alter_request(question["alter"], version)
        return _describe_request(question["describe"], version)

    @contextlib.contextmanager
    def connect(server: Server) -> Iterator[Callable[[Question], Any]]:
        with _sender(server) as send:
            yield lambda question: send(prepared(question))

    assert_same_answers(both, connect, [*QUESTIONS, *RAW_QUESTIONS], changes=changes, reads=reads)


def test_what_tools_ask_besides_gets_the_same_answers(both: tuple[Server, Server]) -> None:
    """Credentials of users that have none, and a cluster of controllers, which no broker's listener describes."""

    def requests() -> Iterator[Any]:
        for users in (["nobody"], ["nobody", "nobody", "somebody"], [""]):
            yield DescribeUserScramCredentialsRequest[0](users=[(user,) for user in users])
        for version, endpoint_type in itertools.product((1, 2), (0, 2, 3)):
            yield DescribeClusterRequest[version](endpoint_type=endpoint_type)

    answers = []
    for server in both:
        with _sender(server) as send:
            answers.append([send(request) for request in requests()])
    ours, theirs = answers
    assert ours == theirs


@contextlib.contextmanager
def _sender(server: Server) -> Iterator[Callable[[Any], Any]]:
    """Sends a request as it is, and returns all fields of the answer."""
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=server.address)) as client:
        manager = client._manager

        async def send(request: Any) -> Any:
            return await manager.send(request)

        yield lambda request: _comparable(manager.run(send, request).to_dict())


def _describe_request(question: Question, version: int) -> Any:
    components = [(one["type"], one["match_type"], one["match"]) for one in question["components"]]
    return DescribeClientQuotasRequest[version](components=components, strict=question["strict"])


def _alter_request(question: Question, version: int) -> Any:
    entries = []
    for one in question["alterations"]:
        entity = [(part["type"], part["name"]) for part in one["entity"]]
        ops = [(op["key"], float(op["value"] or 0), op["value"] is None) for op in one["ops"]]
        entries.append((entity, ops))
    return AlterClientQuotasRequest[version](entries=entries, validate_only=question["validate_only"])


def _comparable(value: Any) -> Any:
    """With numbers that have a point as texts: NaN is no JSON, and differs from itself."""
    if isinstance(value, list):
        return [_comparable(inner) for inner in value]
    if isinstance(value, dict):
        return {name: _comparable(inner) for name, inner in value.items()}
    return str(value) if isinstance(value, float) else value
