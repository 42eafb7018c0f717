"""Lines that are not as they should be, and lines that only look so."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.pipeline.ingest.request_log.line import LogLine, OtherLine, ProduceLine, RejectedLineError, decode_lines


def body(**changes: Any) -> dict[str, Any]:
    request: dict[str, Any] = {
        "isForwarded": False,
        "requestHeader": {"requestApiKey": 0, "requestApiVersion": 9, "correlationId": 7, "clientId": "app"},
        "request": {
            "transactionalId": None,
            "acks": -1,
            "topicData": [{"name": "t", "partitionData": [{"index": 0, "recordsSizeInBytes": 1024}]}],
        },
        "response": None,
        "connection": "10.0.0.1:9092-10.0.0.9:51264-3",
        "totalTimeMs": 2.5,
        "localTimeMs": 1.9,
        "remoteTimeMs": 0.2,
        "throttleTimeMs": 120,
        "responseQueueTimeMs": 0.1,
        "sendTimeMs": 0.2,
        "principal": "User:alice",
        "listener": "CLIENT",
    }
    return request | changes


def line(
    request: dict[str, Any] | None = None,
    *,
    prefix: str = "[2026-01-02 03:04:05,678] DEBUG ",
    suffix: str = " (kafka.request.logger)",
) -> bytes:
    return f"{prefix}Completed request:{json.dumps(request or body(), separators=(',', ':'))}{suffix}".encode()


def decode(text: bytes) -> tuple[bytes, LogLine]:
    [time], [request] = decode_lines(text)
    return time, request


def test_an_ordinary_line() -> None:
    """The default layout gives time and request."""
    time, request = decode(line())
    assert time == b"2026-01-02 03:04:05,678"
    assert isinstance(request, ProduceLine)
    assert request.throttleTimeMs == 120


@pytest.mark.parametrize(
    ("prefix", "suffix", "time"),
    [
        ("[2026-01-02 03:04:05,678] TRACE ", " (kafka.request.logger)", b"2026-01-02 03:04:05,678"),
        ("[2026-01-02 03:04:05,678] DEBUG ", " (kafka.request.logger)\r", b"2026-01-02 03:04:05,678"),
        ("[2026-01-02 03:04:05,678] DEBUG ", "", b"2026-01-02 03:04:05,678"),
        ("2026-01-02T03:04:05.6 INFO [x] kafka.request.logger - ", "", b"2026-01-02 03:04:05,600"),
        ("2026-01-02T03:04:05.678+01:00 DEBUG ", "", b"2026-01-02 03:04:05+01:00,678"),
        ("2026-01-02T03:04:05Z DEBUG ", "", b"2026-01-02 03:04:05Z,000"),
    ],
)
def test_other_layouts_are_read(prefix: str, suffix: str, time: bytes) -> None:
    """A layout that an operator chose is read as long as it has the time and the JSON."""
    logged, request = decode(line(prefix=prefix, suffix=suffix))
    assert logged == time
    assert request.principal == "User:alice"


def test_a_block_is_decoded_line_by_line() -> None:
    """Layouts may change between lines, and each line keeps its place."""
    others = [line(body(principal=f"User:{number}"), suffix=" (x)" if number == 3 else "") for number in range(5)]
    ordinary = [line(body(principal=f"User:{number}")) for number in range(5)]
    for lines in (others, ordinary, [*others, *ordinary]):
        times, requests = decode_lines(b"\n".join(lines) + b"\n")
        assert times == [b"2026-01-02 03:04:05,678"] * len(lines)
        assert [request.principal for request in requests] == [f"User:{number % 5}" for number in range(len(lines))]


def test_one_bad_line_refuses_its_block() -> None:
    """All or none: who asks must find the bad line."""
    with pytest.raises(RejectedLineError, match="the line ends within it"):
        decode_lines(b"\n".join([line(), line()[:400], line()]))


def test_fields_in_another_order_give_the_same_request() -> None:
    """The decoder is chosen by the API, wherever its number stands."""
    request = body()
    reordered = dict(reversed(request.items()))
    assert decode(line(reordered))[1] == decode(line(request))[1]


@pytest.mark.parametrize("api_key", [3, 18, 49, 190, 1000])
def test_other_apis_need_no_body(api_key: int) -> None:
    """An API that no quota looks into may have any body."""
    header = {"requestApiKey": api_key, "requestApiVersion": 1, "correlationId": 1, "clientId": None}
    request = decode(line(body(requestHeader=header, request={"topics": 7}, response="")))[1]
    assert isinstance(request, OtherLine)
    assert request.requestHeader.clientId is None


NEEDED = ["isForwarded", "requestHeader", "request", "connection", "localTimeMs", "throttleTimeMs", "principal"]


@pytest.mark.parametrize("name", NEEDED)
def test_a_missing_field_is_named(name: str) -> None:
    """A line that lacks a needed field is refused, and the reason names the field."""
    request = body()
    del request[name]
    with pytest.raises(RejectedLineError, match=name):
        decode(line(request))


@pytest.mark.parametrize(
    "changes",
    [
        {"localTimeMs": "NaN"},
        {"localTimeMs": -1},
        {"throttleTimeMs": "12"},
        {"throttleTimeMs": -5},
        {"throttleTimeMs": 1.5},
        {"principal": None},
        {"isForwarded": 0},
        {"request": None},
        {"request": ""},
        {"requestHeader": {"requestApiKey": "0", "requestApiVersion": 9, "clientId": "a"}},
    ],
)
def test_a_mistyped_field_is_refused(changes: dict[str, Any]) -> None:
    """A field of the wrong type is never read as 0."""
    with pytest.raises(RejectedLineError, match="not the request that Kafka logs"):
        decode(line(body(**changes)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "no `Completed request:`"),
        (b"[2026-01-02 03:04:05,678] INFO Started (kafka.server)", "no `Completed request:`"),
        (line()[:400], "the line ends within it"),
        (line()[:-30], "the line ends within it"),
        (line().replace(b'"acks":-1', b'"acks":NaN'), "broken JSON"),
        (line().replace(b'"name":"t"', b'"name":"\xff\xfe"'), "broken JSON"),
        (line().replace(b'"totalTimeMs":2.5', b'"totalTimeMs":2.5.5'), "broken JSON"),
        (line()[50:], "no `Completed request:`"),
        (line(prefix=""), "no time"),
        (b"Completed request:RequestHeader(apiKey=PRODUCE, apiVersion=7) -- {acks=1}", "before 2.8"),
        (b"[2026-01-02 03:04:05,678] DEBUG Completed request:" + b"[" * 100_000, "broken JSON"),
        (line().replace(b'"response":null', b'"response":' + b"[" * 100_000 + b"]" * 100_000), "nested too deeply"),
    ],
)
def test_bad_lines_say_why(text: bytes, reason: str) -> None:
    """Each way of being broken has its reason."""
    with pytest.raises(RejectedLineError, match=reason):
        decode(text)


def test_a_line_of_five_megabytes_is_a_line() -> None:
    """Length alone is no reason to refuse a line."""
    request = body()
    request["request"]["topicData"] *= 80_000
    long = line(request)
    assert len(long) > 5_000_000
    decoded = decode(long)[1]
    assert isinstance(decoded, ProduceLine)
    assert len(decoded.request.topicData) == 80_000


@given(st.binary(max_size=300) | st.binary(max_size=60).map(lambda junk: line()[:200] + junk + line()[200:]))
def test_any_bytes_give_a_request_or_a_reason(text: bytes) -> None:
    """Decoding is total."""
    reason = ""
    try:
        decode(text)
    except RejectedLineError as error:
        reason = str(error)
    else:
        reason = "none"
    assert reason
