"""Lines that real brokers wrote, from Kafka 2.7 to 4.3, with the bytes that those brokers charged."""

import json
from pathlib import Path

import pytest

from kquota.pipeline.ingest.request_log.charged_size import fetch_charge, produce_charge
from kquota.pipeline.ingest.request_log.line import (
    CreatePartitionsLine,
    CreateTopicsLine,
    DeleteTopicsLine,
    FetchLine,
    FetchResponse,
    LogLine,
    ProduceLine,
    RejectedLineError,
    decode_lines,
)

GOLDEN = Path("tests/data/golden")
VERSIONS = ["2.8.2", "3.9.1", "4.3.0"]


def read(version: str) -> list[bytes]:
    return (GOLDEN / version / "kafka-request.log").read_bytes().removesuffix(b"\n").split(b"\n")


def decoded(version: str) -> list[LogLine]:
    return decode_lines(b"\n".join(read(version)))[1]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_line_decodes(version: str) -> None:
    """Each line of each broker gives the request that plain JSON gives, too."""
    lines = read(version)
    for line, time, request in zip(lines, *decode_lines(b"\n".join(lines)), strict=True):
        plain = json.loads(line[line.index(b"{") : line.rindex(b"}") + 1])
        assert request.requestHeader.requestApiKey == plain["requestHeader"]["requestApiKey"]
        assert request.requestHeader.clientId == plain["requestHeader"]["clientId"]
        assert request.principal == plain["principal"]
        assert request.throttleTimeMs == plain["throttleTimeMs"]
        assert request.isForwarded == plain["isForwarded"]
        assert line.startswith(b"[%b]" % time)


@pytest.mark.parametrize("version", VERSIONS)
def test_charged_sizes_are_those_of_the_wire(version: str) -> None:
    """What is computed from a line is what went over the wire, for every produce and fetch of the capture."""
    requests = decoded(version)
    sizes = [json.loads(line) for line in (GOLDEN / version / "sizes.jsonl").read_text().splitlines()]
    checked = set()
    for size in sizes:
        request = requests[size["line"] - 1]
        header = request.requestHeader
        if isinstance(request, ProduceLine):
            charged = produce_charge(request.request, header.requestApiVersion, header.clientId)
        else:
            assert isinstance(request, FetchLine)
            assert isinstance(request.response, FetchResponse)
            is_refunded = request.throttleTimeMs > 0 or request.is_follower
            charged = 0 if is_refunded else fetch_charge(request.response, header.requestApiVersion)
        assert charged == size["charged"], size
        checked.add((header.requestApiKey, header.requestApiVersion))
    newest = {"2.8.2": (9, 12), "3.9.1": (11, 17), "4.3.0": (13, 18)}[version]
    oldest = (3, 4) if version == "4.3.0" else (0, 0)
    assert checked == {(0, v) for v in range(oldest[0], newest[0] + 1)} | {
        (1, v) for v in range(oldest[1], newest[1] + 1)
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_mutations_tell_their_throttle_in_the_answer(version: str) -> None:
    """A throttled mutation has its time in the response; the golden lines have some of each kind."""
    mutations = [
        line
        for line in decoded(version)
        if isinstance(line, CreateTopicsLine | CreatePartitionsLine | DeleteTopicsLine)
    ]
    told = {
        type(line)
        for line in mutations
        if not isinstance(line.response, str | None) and line.response.throttleTimeMs > 0
    }
    assert told == {CreateTopicsLine, CreatePartitionsLine, DeleteTopicsLine}


def test_followers_are_told_from_consumers() -> None:
    """Followers carry a replica id: in the body up to version 14, in replicaState after."""
    followers = {
        line.requestHeader.requestApiVersion
        for line in decoded("4.3.0")
        if isinstance(line, FetchLine) and line.is_follower
    }
    assert followers >= {14, 15}


def test_forwarded_requests_are_marked() -> None:
    """A request that a broker forwarded appears twice in a KRaft log, once marked."""
    lines = decoded("4.3.0")
    forwarded = [line for line in lines if line.isForwarded]
    assert forwarded
    for copy in forwarded:
        key = (copy.requestHeader.requestApiKey, copy.requestHeader.clientId)
        assert any(
            not line.isForwarded and (line.requestHeader.requestApiKey, line.requestHeader.clientId) == key
            for line in lines
        )


def test_the_text_format_before_2_8_is_named() -> None:
    """Lines that Kafka 2.7 wrote are refused with the reason."""
    for line in read("2.7"):
        with pytest.raises(RejectedLineError, match=r"before 2\.8"):
            decode_lines(line)
