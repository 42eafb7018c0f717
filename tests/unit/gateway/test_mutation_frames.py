"""Requests that change topics, split and put together again, as bytes."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from msgspec import structs

from kquota.errors import MalformedMessageError, ProtocolError, TooManyElementsError, UnsupportedVersionError
from kquota.gateway.mutations.frames import (
    read_mutation_request,
    read_mutation_response,
)
from kquota.gateway.mutations.splitting import write_answer, write_request_without
from kquota.metering.requests import STRICT_SINCE
from kquota.wire.apis import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    TOPIC_APIS,
    Api,
    read_header,
    read_response,
    skip_header_tags,
    write_request,
    write_response,
)
from kquota.wire.messages.topics import (
    NO_UUID,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.kit.wire_values import (
    kafka_python_class,
    kio_bytes,
    kio_class,
    kio_read,
    same_as_kafka_python,
    texts,
    to_kio,
    values,
)

VERSIONS = [(api, version) for api in TOPIC_APIS for version in range(api.max_version + 1)]


def parameters(versions: list[tuple[Api, int]]) -> list[Any]:
    return [pytest.param(api, version, id=f"{api.name}-v{version}") for api, version in versions]


EVERY_VERSION = parameters(VERSIONS)
STRICT = parameters([(api, version) for api, version in VERSIONS if version >= STRICT_SINCE[api.key]])
OLDEST = parameters([(api, version) for api, version in VERSIONS if version < api.min_version])

TAGS = b"\2\5\2ab\x7f\1c"
"""Two tagged fields that nobody knows."""


def topics_of(api: Api, version: int, body: Any) -> list[Any]:
    return list(body.topic_names) if api is DELETE_TOPICS and version < 6 else list(body.topics)


def key_of(topic: Any) -> str | bytes:
    if isinstance(topic, str):
        return topic
    if topic.name is not None:
        return str(topic.name)
    return bytes(topic.topic_id) if any(topic.topic_id) else ""


def keys_of(api: Api, version: int, body: Any) -> list[str | bytes]:
    return [key_of(topic) for topic in topics_of(api, version, body)]


def result_of(api: Api, key: str | bytes, code: int, index: int) -> Any:
    """A broker's; one of a topic that was asked for by its id has a name, too."""
    if api is CREATE_TOPICS:
        assert isinstance(key, str)
        return CreatableTopicResult(key, bytes(15) + b"\2", code, None, index, 1, [])
    if api is CREATE_PARTITIONS:
        assert isinstance(key, str)
        return CreatePartitionsTopicResult(key, code, None)
    if isinstance(key, str):
        return DeletableTopicResult(key, NO_UUID if not key else bytes(14) + b"\3\3", code)
    return DeletableTopicResult(f"topic-{index}", key, code)


def answer_of(api: Api, version: int, results: list[Any], throttle_ms: int) -> bytes:
    return write_response(api, version, 99, api.response(throttle_ms, results))[4:]


def results_in(api: Api, body: Any) -> list[Any]:
    if api is DELETE_TOPICS:
        return list(body.responses)
    return list(body.topics if api is CREATE_TOPICS else body.results)


def request_frames(api: Api, version: int) -> st.SearchStrategy[tuple[Any, bytes]]:
    """Bodies, and the frames with them, without their sizes."""
    return st.tuples(values(api.request, version), st.none() | texts).map(
        lambda drawn: (drawn[0], write_request(api, version, 99, drawn[1], drawn[0])[4:])
    )


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
@given(data=st.data())
@settings(max_examples=25)
def test_a_request_is_read_as_its_codec_reads_it(api: Api, version: int, data: st.DataObject) -> None:
    """Every topic, where it begins and ends, and whether anything is to be done at all."""
    body, frame = data.draw(request_frames(api, version))
    request = read_mutation_request(frame)
    assert (request.api, request.version) == (api, version)
    assert [topic.key for topic in request.topics] == keys_of(api, version, body)
    if api is CREATE_TOPICS:
        asked = [len(topic.assignments) or topic.num_partitions for topic in body.topics]
    else:
        asked = [topic.count if api is CREATE_PARTITIONS else 0 for topic in topics_of(api, version, body)]
    assert [topic.partitions for topic in request.topics] == asked
    assert request.validate_only == getattr(body, "validate_only", False)
    ends = [topic.end for topic in request.topics]
    assert [topic.start for topic in request.topics][1:] == ends[:-1]


@pytest.mark.parametrize(("api", "version"), STRICT)
@given(data=st.data())
@settings(max_examples=40)
def test_what_is_forwarded_are_the_accepted_topics(api: Api, version: int, data: st.DataObject) -> None:
    """As an independent implementation reads it, with the same header and the same fields behind the topics."""
    body, frame = data.draw(request_frames(api, version))
    keys = keys_of(api, version, body)
    refused = data.draw(st.sets(st.sampled_from(keys))) if keys else set()
    forwarded = write_request_without(read_mutation_request(frame), refused)
    assert struct.unpack_from(">i", forwarded) == (len(forwarded) - 4,)
    _, at = read_header(frame)
    at = skip_header_tags(frame, at)
    assert forwarded[4 : 4 + at] == frame[:at]
    kept = [topic for topic in topics_of(api, version, body) if key_of(topic) not in refused]
    field = "topic_names" if api is DELETE_TOPICS and version < 6 else "topics"
    theirs = kio_class(api, version, "request")
    assert kio_read(theirs, forwarded[4 + at :]) == to_kio(structs.replace(body, **{field: kept}), theirs)
    if not refused:
        assert forwarded[4:] == frame


@pytest.mark.parametrize(("api", "version"), STRICT)
@given(data=st.data())
@settings(max_examples=40)
def test_the_answer_has_one_result_for_each_topic_in_their_order(api: Api, version: int, data: st.DataObject) -> None:
    """Whatever part was refused, and in whatever order the broker answered the others."""
    body, frame = data.draw(request_frames(api, version))
    request = read_mutation_request(frame)
    keys = list(dict.fromkeys(keys_of(api, version, body)))
    refused = data.draw(st.sets(st.sampled_from(keys).filter(bool))) if any(keys) else set()
    code = data.draw(st.sampled_from([0, 7, 36]))
    results = [result_of(api, key, code, index) for index, key in enumerate(keys) if key not in refused]
    throttle_ms = data.draw(st.integers(0, 2**31 - 1))
    response = None
    if results or not refused:
        answered = answer_of(api, version, data.draw(st.permutations(results)), throttle_ms)
        response = read_mutation_response(request, answered)
    frame = write_answer(request, response, refused)
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    correlation_id, merged = read_response(api, version, frame[4:])
    assert correlation_id == 99
    assert merged.throttle_time_ms == (throttle_ms if response else 0)
    found = results_in(api, merged)
    made = [result_of(api, key, 89 if key in refused else code, index) for index, key in enumerate(keys)]
    wanted = results_in(api, read_response(api, version, answer_of(api, version, made, 0))[1])
    if refused:
        assert [one.error_code for one in found] == [one.error_code for one in wanted]
        for one, other, key in zip(found, wanted, keys, strict=True):
            if key in refused:
                assert one.error_message is None
                assert key in (one.name, getattr(one, "topic_id", NO_UUID))
            else:
                assert one == other
    else:
        assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    theirs = kio_class(api, version, "response")
    assert kio_bytes(kio_read(theirs, frame[9:])) == frame[9:]


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
@given(data=st.data())
@settings(max_examples=25)
def test_where_nothing_is_refused_bytes_pass_as_they_are(api: Api, version: int, data: st.DataObject) -> None:
    _, frame = data.draw(request_frames(api, version))
    request = read_mutation_request(frame)
    assert write_request_without(request, ()) == struct.pack(">i", len(frame)) + frame
    body = data.draw(values(api.response, version))
    answer = write_response(api, version, 99, body)
    response = read_mutation_response(request, answer[4:])
    assert [one.error_code for one in response.results] == [one.error_code for one in results_in(api, body)]
    assert write_answer(request, response, ()) == answer


@pytest.mark.parametrize(("api", "version"), OLDEST)
@given(data=st.data())
@settings(max_examples=25)
def test_versions_before_kafka_4_are_the_same_elsewhere(api: Api, version: int, data: st.DataObject) -> None:
    """kafka-python has them still."""
    for part, message in (("Request", api.request), ("Response", api.response)):
        value = data.draw(values(message, version))
        codec = api.request_codec(version) if part == "Request" else api.response_codec(version)
        written = codec.write(value)
        assert codec.read(written, 0) == (value, len(written))
        theirs = kafka_python_class(api, part).decode(written, version=version)
        assert same_as_kafka_python(value, theirs, version)
        if part == "Request":
            theirs.with_header()
        assert bytes(theirs.encode()) == written


@pytest.mark.parametrize(("api", "version"), STRICT)
def test_tags_that_nobody_knows_stay(api: Api, version: int) -> None:
    """In the header, behind the topics, and in each of them; so does a client id of null."""
    if api is CREATE_TOPICS:
        topics = [b"\2" + name + b"\0\0\0\1\0\1\1\1" + TAGS for name in (b"a", b"b", b"c")]
    elif api is CREATE_PARTITIONS:
        topics = [b"\2" + name + b"\0\0\0\5\0" + TAGS for name in (b"a", b"b", b"c")]
    elif version == 5:
        topics = [b"\2" + name for name in (b"a", b"b", b"c")]
    else:
        topics = [b"\2" + name + bytes(16) + TAGS for name in (b"a", b"b", b"c")]
    head = struct.pack(">hhih", api.key, version, -7, -1) + TAGS
    tail = b"\0\0\x75\x30" + (b"" if api is DELETE_TOPICS else b"\1") + TAGS
    request = read_mutation_request(head + b"\4" + b"".join(topics) + tail)
    assert [topic.key for topic in request.topics] == ["a", "b", "c"]
    assert write_request_without(request, {"b"})[4:] == head + b"\3" + topics[0] + topics[2] + tail


def test_tags_of_an_answer_stay() -> None:
    """A topic whose settings the client may not see says so in a tag, and a broker's header may have some, too."""
    topics = [CreatableTopic(name, 1, 1, [], []) for name in ("a", "b", "c")]
    request = read_mutation_request(write_request(CREATE_TOPICS, 7, 99, "x", CreateTopicsRequest(topics, 5))[4:])
    kind = kio_class(CREATE_TOPICS, 7, "response")
    written = CREATE_TOPICS.response_codec(7).write(
        CreateTopicsResponse(8, [CreatableTopicResult(name, configs=None) for name in ("c", "a")])
    )
    theirs = kio_read(kind, written)
    hidden = [
        dataclasses.replace(one, topic_config_error_code=ErrorCode.topic_authorization_failed) for one in theirs.topics
    ]
    frame = struct.pack(">i", 99) + TAGS + kio_bytes(dataclasses.replace(theirs, topics=tuple(hidden)))[:-1] + TAGS
    merged = write_answer(request, read_mutation_response(request, frame), {"b"})
    assert merged[4 : 8 + len(TAGS)] == struct.pack(">i", 99) + TAGS
    assert merged.endswith(TAGS)
    found = kio_read(kind, merged[8 + len(TAGS) : -len(TAGS)] + b"\0")
    assert [(one.name, int(one.error_code), int(one.topic_config_error_code)) for one in found.topics] == [
        ("a", 0, 29), ("b", 89, 0), ("c", 0, 29),
    ]  # fmt: skip


def test_a_refused_topic_looks_as_a_broker_of_kafka_4_3_wrote_it() -> None:
    """Recorded: the id of a topic that is not there, -1 for what nobody decided, no settings, no message."""
    topic = CreatableTopic("storm-7-1", 20, 1, [], [])
    request = read_mutation_request(write_request(CREATE_TOPICS, 7, 1, "c", CreateTopicsRequest([topic], 30_000))[4:])
    recorded = CreatableTopicResult("storm-7-1", NO_UUID, 89, None, -1, -1, [])
    answer = write_answer(request, None, {"storm-7-1"})
    assert answer == write_response(CREATE_TOPICS, 7, 1, CreateTopicsResponse(0, [recorded]))


def test_topics_are_deleted_by_name_or_id() -> None:
    """And a result is that of the id that was asked for, whatever name it gives."""
    first, second = bytes(15) + b"\1", bytes(15) + b"\2"
    asked = [DeleteTopicState(None, first), DeleteTopicState("a"), DeleteTopicState(None, second)]
    request = read_mutation_request(write_request(DELETE_TOPICS, 6, 99, None, DeleteTopicsRequest(asked))[4:])
    assert [topic.key for topic in request.topics] == [first, "a", second]
    results = [DeletableTopicResult("a", bytes(15) + b"\3", 0), DeletableTopicResult("b", second, 0)]
    response = read_mutation_response(request, answer_of(DELETE_TOPICS, 6, results, 0))
    assert [one.key for one in response.results] == ["a", second]
    of_refused = DeletableTopicResult("a", first, 0)  # the same topic, asked for twice
    response_to_a = read_mutation_response(request, answer_of(DELETE_TOPICS, 6, [of_refused], 0), {first})
    assert [one.key for one in response_to_a.results] == ["a"]
    _, merged = read_response(DELETE_TOPICS, 6, write_answer(request, response, {first})[4:])
    assert [(one.name, one.topic_id, one.error_code) for one in merged.responses] == [
        (None, first, 89), ("a", bytes(15) + b"\3", 0), ("b", second, 0),
    ]  # fmt: skip


def test_a_result_that_nobody_asked_for_comes_last() -> None:
    """Nothing that a broker says is dropped."""
    asked = DeleteTopicsRequest(topic_names=["a", "b"])
    request = read_mutation_request(write_request(DELETE_TOPICS, 5, 99, "", asked)[4:])
    results = [DeletableTopicResult("other", error_code=-1), DeletableTopicResult("b")]
    response = read_mutation_response(request, answer_of(DELETE_TOPICS, 5, results, 0))
    _, merged = read_response(DELETE_TOPICS, 5, write_answer(request, response, {"a"})[4:])
    assert [one.name for one in merged.responses] == ["a", "b", "other"]


@pytest.mark.parametrize("most", [3, 4])
def test_topics_and_what_one_of_them_holds_are_counted(most: int) -> None:
    """Four topics are one too many, and so are four elements in one."""
    config = [CreatableTopicConfig("k", "v")]
    four_topics = [CreatableTopic(str(index), 1, 1, [], config) for index in range(4)]
    assignment = CreatableReplicaAssignment(0, [1, 2])
    four_elements = [CreatableTopic("a", -1, -1, [assignment], config), CreatableTopic("b", 1, 1, [], config)]
    for topics in (four_topics, four_elements):
        frame = write_request(CREATE_TOPICS, 7, 1, "c", CreateTopicsRequest(topics, 5))[4:]
        if most == 4:
            assert len(read_mutation_request(frame, max_elements=most).topics) == len(topics)
        else:
            with pytest.raises(TooManyElementsError, match="more than 3 elements"):
                read_mutation_request(frame, max_elements=most)


@pytest.mark.parametrize(("key", "version"), [(19, 8), (20, 7), (37, 4), (19, -1), (3, 9)])
def test_other_requests_are_not_read(key: int, version: int) -> None:
    with pytest.raises(UnsupportedVersionError):
        read_mutation_request(struct.pack(">hhih", key, version, 1, -1) + bytes(20))


@pytest.mark.parametrize("frame", [b"\0\x14\0\1\0\0\0\1\xff\xff" + end for end in (
    b"", b"\0\0\0", b"\xff\xff\xff\xff\0\0\0\5", b"\x7f\xff\xff\xff\0\0\0\5", b"\0\0\0\1\xff\xff\0\0\0\5",
    b"\0\0\0\1\0", b"\0\0\0\1\0\4abc", b"\0\0\0\1\0\3abc\0\0\0",
)])  # fmt: skip
def test_a_request_that_ends_too_early_or_has_no_names(frame: bytes) -> None:
    """Lists and names of null, lengths beyond the end, and no timeout: a broker closes the connection, too."""
    with pytest.raises(MalformedMessageError):
        read_mutation_request(frame)


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
@given(data=st.data())
@settings(max_examples=25)
def test_any_bytes_are_a_message_or_a_typed_error(api: Api, version: int, data: st.DataObject) -> None:
    """Cut off, changed, or made up, from clients and from brokers."""
    _, frame = data.draw(request_frames(api, version))
    answer = write_response(api, version, 99, data.draw(values(api.response, version)))[4:]
    request = read_mutation_request(frame)
    for whole, read in ((frame, read_mutation_request), (answer, lambda raw: read_mutation_response(request, raw))):
        cut = data.draw(st.integers(0, len(whole) - 2))
        with pytest.raises(MalformedMessageError):
            read(whole[:cut])
        changed = bytearray(whole)
        for _ in range(3):
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
        try:
            read(bytes(changed))
        except ProtocolError:
            continue
