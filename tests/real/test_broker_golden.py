"""The golden lines are what real brokers write and charge, today as on the day they were recorded."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.kafka import OLD, VERSIONS, needs_kafka
from tests.real.record_golden import GOLDEN, USERS, record

PRODUCE, FETCH, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 0, 1, 19, 20, 37
# Parts of a line that depend on how quick the broker was.
NOT_ALWAYS = {"currentLeader", "nodeEndpoints", "messageConversionsTime", "temporaryMemoryBytes"}

Sizes = list[dict[str, int]]


def parsed(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line[line.index("request:{") + 8 : line.rindex(" (kafka.request.logger)")]) for line in lines]


def golden(version: str) -> tuple[list[dict[str, Any]], Sizes]:
    folder = GOLDEN / version
    # Not splitlines() nor universal newlines: a name in there holds U+2028.
    text = (folder / "kafka-request.log").read_bytes().decode().removesuffix("\n")
    sizes = [json.loads(line) for line in (folder / "sizes.jsonl").read_text(encoding="utf-8").splitlines()]
    return parsed(text.split("\n")), sizes


def key(line: dict[str, Any]) -> tuple[int, int]:
    return line["requestHeader"]["requestApiKey"], line["requestHeader"]["requestApiVersion"]


def paths(value: Any, prefix: str = "") -> Iterator[str]:
    match value:
        case dict():
            for name, inner in value.items():
                if name not in NOT_ALWAYS:
                    yield from paths(inner, f"{prefix}.{name}")
        case list():
            for inner in value:
                yield from paths(inner, f"{prefix}[]")
        case _:
            yield prefix


def shapes(lines: list[dict[str, Any]]) -> dict[tuple[int, int], set[str]]:
    """All paths to values that the lines of an API version have, of those that a broker is asked for."""
    found: dict[tuple[int, int], set[str]] = defaultdict(set)
    for line in lines:
        if key(line)[0] in (PRODUCE, FETCH, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS):
            found[key(line)] |= set(paths(line))
    return dict(found)


def told(line: dict[str, Any]) -> int:
    return int(max(line["throttleTimeMs"], (line["response"] or {}).get("throttleTimeMs", 0)))


@pytest.mark.parametrize("version", VERSIONS)
class TestRecorded:
    def test_every_version_of_what_is_metered_is_there(self, version: str) -> None:
        lines, _ = golden(version)
        served = next(line["response"]["apiKeys"] for line in lines if key(line) == (18, 0))
        asked = {key(line) for line in lines}
        for api in served:
            if api["apiKey"] in (PRODUCE, FETCH, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS):
                # Kafka 4 announces Produce 0 to 2 for old clients' sake and does not serve them.
                low = 3 if api["apiKey"] == PRODUCE and version.startswith("4.") else api["minVersion"]
                assert {(api["apiKey"], at) for at in range(low, api["maxVersion"] + 1)} <= asked

    def test_each_kind_is_there_throttled(self, version: str) -> None:
        lines, _ = golden(version)
        throttled = {key(line)[0] for line in lines if told(line) > 0}
        assert {PRODUCE, FETCH, 3, 10, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS} <= throttled

    def test_awkward_clients_are_there(self, version: str) -> None:
        lines, _ = golden(version)
        assert {line["principal"] for line in lines} >= {"User:ANONYMOUS", *(f"User:{user}" for user in USERS)}
        client_ids = {line["requestHeader"]["clientId"] for line in lines}
        assert client_ids >= {"", "büro-☃", "etl, a=b", 'say "hi"\\'}
        assert (None in client_ids) == (version == OLD)  # later brokers log the empty string instead

    def test_the_charged_size_of_a_produce_request_is_what_the_broker_measured(self, version: str) -> None:
        _, sizes = golden(version)
        measured = [row for row in sizes if row["api_key"] == PRODUCE and "measured" in row]
        assert len({row["api_version"] for row in measured}) >= 9
        assert all(row["charged"] == row["measured"] for row in measured)

    def test_only_throttled_and_follower_fetches_are_free(self, version: str) -> None:
        lines, sizes = golden(version)
        for row in sizes:
            line = lines[row["line"] - 1]
            assert key(line) == (row["api_key"], row["api_version"])
            free = line["requestHeader"]["clientId"] == "broker-2-fetcher-0" or told(line) > 0
            assert (row["charged"] == 0) == (row["api_key"] == FETCH and free), line


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[dict[str, Any]], Sizes]]:
    return {}


@pytest.mark.parametrize("version", VERSIONS)
class TestRecordedAgain:
    """What a broker of the same version writes and charges now."""

    @pytest.fixture
    def again(
        self, version: str, tmp_path: Path, recordings: dict[str, tuple[list[dict[str, Any]], Sizes]]
    ) -> tuple[list[dict[str, Any]], Sizes]:
        if version not in recordings:
            needs_kafka(version)
            lines, sizes = record(version, tmp_path)
            recordings[version] = parsed(lines), sizes
        return recordings[version]

    def test_lines_have_the_same_shape(self, version: str, again: tuple[list[dict[str, Any]], Sizes]) -> None:
        assert shapes(again[0]) == shapes(golden(version)[0])

    def test_the_same_requests_are_charged_the_same(
        self, version: str, again: tuple[list[dict[str, Any]], Sizes]
    ) -> None:
        def charges(lines: list[dict[str, Any]], sizes: Sizes) -> list[tuple[int, str, int]]:
            rows = [(row, lines[row["line"] - 1]["requestHeader"]["clientId"]) for row in sizes]
            return sorted(
                (row["api_version"], client or "", row["charged"]) for row, client in rows if row["api_key"] == PRODUCE
            )

        assert charges(*again) == charges(*golden(version))

    def test_the_broker_measures_the_frame(self, version: str, again: tuple[list[dict[str, Any]], Sizes]) -> None:
        measured = [row for row in again[1] if row["api_key"] == PRODUCE and "measured" in row]
        assert measured
        assert all(row["charged"] == row["measured"] for row in measured)
