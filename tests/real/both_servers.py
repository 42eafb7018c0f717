"""A quota server of ours beside a real Kafka, for clients that are to notice no difference."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pytest

from examples.capture.broker import Broker
from tests.kit.eventually import eventually
from tests.kit.kafka import NEW
from tests.real.clusters import OURS, cluster
from tests.real.raw_kafka import Connection

__all__ = ["Server", "assert_same_answers", "both"]

Question = TypeVar("Question")

DESCRIBE_CONFIGS: Final = 32
INCREMENTAL_ALTER_CONFIGS: Final = 44
CLIENT_METRICS: Final = 16  # a type of resource with settings that no test looks at

# Each wait is for a value that the broker has never had before.
_intervals_ms = itertools.count(100_000)


@dataclass(frozen=True, slots=True)
class Server:
    """Where it listens, and how to wait until it describes what it has acknowledged."""

    name: str
    address: str
    settle: Callable[[], None]


@pytest.fixture
def both(broker: Callable[[str], Broker]) -> Iterator[tuple[Server, Server]]:
    """A server of ours and a Kafka of the newest version, both without any quota, also afterwards."""
    with cluster(OURS, broker) as ours, cluster(NEW, broker) as kafka:
        yield Server("kquota", ours, lambda: None), Server("kafka", kafka, lambda: _wait_for_the_image(kafka))


def assert_same_answers(
    servers: tuple[Server, Server],
    connect: Callable[[Server], AbstractContextManager[Callable[[Question], Any]]],
    questions: Sequence[Question],
    *,
    changes: Callable[[Question], bool],
    reads: Callable[[Question], bool] = lambda _: True,
) -> None:
    """Ask each server the questions in order; ``connect`` gives a client of it.

    What may change something is settled before the next question that reads.
    """

    def answers(server: Server) -> list[Any]:
        given = []
        is_settled = True
        with connect(server) as ask:
            for question in questions:
                if not is_settled and reads(question):
                    server.settle()
                    is_settled = True
                given.append(_canonical(ask(question)))
                is_settled = is_settled and not changes(question)
        return given

    with ThreadPoolExecutor(len(servers)) as pool:
        ours, theirs = pool.map(answers, servers)
    differences = [
        f"{_shortened(question)}\n  kquota: {_shortened(our)}\n  kafka:  {_shortened(their)}"
        for question, our, their in zip(questions, ours, theirs, strict=True)
        if our != their
    ]
    assert not differences, f"{len(differences)} of {len(questions)} differ:\n" + "\n".join(differences[:5])


def _canonical(value: Any) -> Any:
    """With lists sorted: entities, their types and their values come in no promised order."""
    if isinstance(value, dict):
        return {key: _canonical(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return sorted((_canonical(inner) for inner in value), key=lambda inner: json.dumps(inner, sort_keys=True))
    return value


def _shortened(value: Any, longest: int = 2000) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text)} characters)"


def _wait_for_the_image(address: str) -> None:
    """Until the broker has read all that its controller has acknowledged.

    Describe is answered from the broker's image of the metadata, which follows the controller's log in order: once a
    later change is in the image, the earlier ones are.
    """
    interval_ms = str(next(_intervals_ms))
    resource = {"resource_type": CLIENT_METRICS, "resource_name": "a-later-change"}
    setting = {"name": "interval.ms", "config_operation": 0, "value": interval_ms}
    asked = {
        "resources": [{**resource, "configuration_keys": ["interval.ms"]}],
        "include_synonyms": False,
        "include_documentation": False,
    }
    with Connection(address) as connection:
        change = {"resources": [{**resource, "configs": [setting]}], "validate_only": False}
        answer = connection.request(INCREMENTAL_ALTER_CONFIGS, 1, change, client_id="both-servers").decoded()
        assert [one.error_code.value for one in answer.responses] == [0], answer

        def described() -> list[str]:
            answer = connection.request(DESCRIBE_CONFIGS, 4, asked, client_id="both-servers").decoded()
            return [config.value for one in answer.results for config in one.configs]

        eventually(described, [interval_ms])
