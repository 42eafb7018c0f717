"""Every message in every version: what is written is read again, and others write and read the same bytes."""

import math
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota.errors import IllegalArgumentError, MalformedMessageError
from kquota.wire.apis import APIS, CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CLIENT_QUOTAS, METADATA, Api
from kquota.wire.messages.client_quotas import (
    Component,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    Entry,
    Value,
)
from kquota.wire.messages.topics import (
    CreatableTopicResult,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from kquota.wire.schema import Codec
from tests.kit.wire_values import EVERY_API, KAFKAS_OWN, kio_bytes, kio_class, kio_read, to_kio, values

EVERY_MESSAGE = [
    pytest.param(api, version, part, id=f"{api.name}{part}-v{version}")
    for api in EVERY_API
    for version in range(api.min_version, api.max_version + 1)
    for part in ("Request", "Response")
]
KAFKAS_MESSAGES = [message for message in EVERY_MESSAGE if message.values[0] in KAFKAS_OWN]


def codec_of(api: Api, version: int, part: str) -> tuple[Any, Codec[Any]]:
    if part == "Request":
        return api.request, api.request_codec(version)
    return api.response, api.response_codec(version)


@pytest.mark.parametrize(("api", "version", "part"), EVERY_MESSAGE)
@given(data=st.data())
@settings(max_examples=25)
def test_what_is_written_is_read_again(api: Api, version: int, part: str, data: st.DataObject) -> None:
    """Also behind other bytes, and before more of them."""
    message, codec = codec_of(api, version, part)
    value = data.draw(values(message, version))
    written = codec.write(value)
    assert codec.read(written, 0) == (value, len(written))
    assert codec.read(b"abc" + written + b"xyz", 3) == (value, len(written) + 3)


@pytest.mark.parametrize(("api", "version", "part"), KAFKAS_MESSAGES)
@given(data=st.data())
@settings(max_examples=25)
def test_kio_writes_and_reads_the_same_bytes(api: Api, version: int, part: str, data: st.DataObject) -> None:
    """An independent implementation, made from Kafka's own definitions."""
    message, codec = codec_of(api, version, part)
    value = data.draw(values(message, version))
    theirs = to_kio(value, kio_class(api, version, part.lower()))
    written = codec.write(value)
    assert written == kio_bytes(theirs)
    assert kio_read(type(theirs), written) == theirs


@pytest.mark.parametrize(("api", "version", "part"), EVERY_MESSAGE)
@given(data=st.data())
@settings(max_examples=25)
def test_any_bytes_are_a_value_or_malformed(api: Api, version: int, part: str, data: st.DataObject) -> None:
    """Bytes cut off, changed or made up raise nothing else, and what was cut off is never taken for whole."""
    message, codec = codec_of(api, version, part)
    written = bytearray(codec.write(data.draw(values(message, version))))
    for cut in {len(written) - 1, data.draw(st.integers(0, len(written)))}:
        if 0 <= cut < len(written):
            with pytest.raises(MalformedMessageError):
                codec.read(bytes(written[:cut]), 0)
    for _ in range(3):
        if written:
            written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.integers(0, 255))
    for anything in (bytes(written), data.draw(st.binary(max_size=60))):
        try:
            _, end = codec.read(anything, 0)
        except MalformedMessageError:
            continue
        assert end <= len(anything)


@pytest.mark.parametrize("version", [0, 1])
def test_an_announced_length_costs_nothing(version: int) -> None:
    """Two thousand million elements in nine bytes are refused before anything is made for them."""
    codec = DESCRIBE_CLIENT_QUOTAS.request_codec(version)
    announced = struct.pack(">i", 2**31 - 1) if version == 0 else b"\xff\xff\xff\xff\x07"
    with pytest.raises(MalformedMessageError, match="ends too early"):
        codec.read(announced + b"\0" * 5, 0)


@pytest.mark.parametrize("version", [0, 1])
def test_doubles_keep_their_bits(version: int) -> None:
    """NaN, negative zero and infinities go over the wire as they are."""
    codec = DESCRIBE_CLIENT_QUOTAS.response_codec(version)
    for number in (math.nan, -0.0, math.inf, -math.inf, 5e-324, 1e19):
        raw = struct.pack(">d", number)
        head = b"\0" * 4 + b"\0\0" + (b"\xff\xff\0\0\0\1\0\0\0\0\0\0\0\1\0\1k" if version == 0 else b"\0\2\1\2\2k")
        body = head + raw + (b"" if version == 0 else b"\0\0\0")
        value, end = codec.read(body, 0)
        assert end == len(body)
        assert struct.pack(">d", value.entries[0].values[0].value) == raw
        assert codec.write(value) == body


def test_kafka_is_as_lenient() -> None:
    """Invalid UTF-8, booleans that are neither 0 nor 1, and tags that nobody knows pass."""
    codec = DESCRIBE_CLIENT_QUOTAS.request_codec(1)
    tags = b"\3\5\2ab\1\0\5\1c"  # five, one, and five again
    request = b"\2" + b"\3\xff\xfe" + b"\0" + b"\2\x80" + tags + b"\7" + tags
    value, end = codec.read(request, 0)
    assert value == DescribeClientQuotasRequest([Component("\ufffd\ufffd", 0, "\ufffd")], strict=True)
    assert end == len(request)


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        (b"\xed\xa0\x80", "\ufffd"),  # half a surrogate pair: Python would make three of it
        (b"\xed\xbf\xbfb", "\ufffdb"),
        (b"\xed\xa0\x80\xed\xb0\x80", "\ufffd\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0a", "\ufffda"),
        (b"\xed", "\ufffd"),
        (b"\xeda", "\ufffda"),
        (b"\xed\x9f\xbf", "\ud7ff"),
        (b"\xed\xa0\xa0\xa0", "\ufffd\ufffd"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xf4\x90\x80\x80", "\ufffd" * 4),
        (b"\xf0\x9fa", "\ufffda"),
    ],
)
@pytest.mark.parametrize("version", [0, 1])
def test_invalid_utf_8_is_read_as_java_does(version: int, raw: bytes, read: str) -> None:
    """As many U+FFFD as a JVM makes of it: two names that are one to a broker are one here."""
    length = bytes([len(raw) + 1]) if version else struct.pack(">h", len(raw))
    request = (b"\2" if version else b"\0\0\0\1") + length + raw + b"\2" + (b"\0\0\0\0" if version else b"\xff\xff\0")
    value, _ = DESCRIBE_CLIENT_QUOTAS.request_codec(version).read(request, 0)
    assert value.components == [Component(read, 2, None)]


@pytest.mark.parametrize(
    ("version", "body", "reason"),
    [
        (0, b"\xff\xff\xff\xff\0", "components is null"),
        (1, b"\0\0\0", "components is null"),
        (0, b"\0\0\0\1\xff\xff\0\xff\xff\0", "entity_type is null"),
        (1, b"\2\0\0\0\0\0\0", "entity_type is null"),
        (1, b"\2\5user\0\x80\x80\x80\x80\x08\0\0\0", "ends too early"),  # less one, an int is 2^31 - 1 again
        (1, b"\x80\x80\x80\x80\x08\0\0", "ends too early"),
        (1, b"\xff\xff\xff\xff\xff\1\0", "more than five bytes"),
        (1, b"\1\0\1\0\xff\xff\xff\xff\x0f", "negative size"),
        (1, b"\2\x81\x80\x02" + b"x" * 32768 + b"\0\0\0\0\0", "ends too early"),
    ],
)
def test_what_kafka_refuses(version: int, body: bytes, reason: str) -> None:
    """Null where there must be something, numbers that are too long, and texts beyond 32,767 bytes."""
    with pytest.raises(MalformedMessageError, match=reason):
        DESCRIBE_CLIENT_QUOTAS.request_codec(version).read(body, 0)


def test_a_text_may_have_32767_bytes() -> None:
    """One more cannot be written, in any version."""
    for version in (0, 1):
        codec = DESCRIBE_CLIENT_QUOTAS.response_codec(version)
        longest = DescribeClientQuotasResponse(0, 42, "x" * 32767, None)
        assert codec.read(codec.write(longest), 0)[0] == longest
        with pytest.raises(IllegalArgumentError, match="32768 bytes cannot be sent"):
            codec.write(DescribeClientQuotasResponse(0, 42, "x" * 32768, None))


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("wrong", ["5", None, b"5", 10**400])
def test_a_double_that_is_none_is_refused(version: int, wrong: Any) -> None:
    """As ``Type.DOUBLE`` of Kafka's protocol does with a SchemaException."""
    codec = DESCRIBE_CLIENT_QUOTAS.response_codec(version)
    with pytest.raises(IllegalArgumentError, match="DescribeClientQuotasResponse holds a number that cannot be sent"):
        codec.write(DescribeClientQuotasResponse(0, 0, None, [Entry([], [Value("k", wrong)])]))


@pytest.mark.parametrize("version", [0, 1])
def test_half_a_surrogate_pair_is_refused(version: int) -> None:
    codec = DESCRIBE_CLIENT_QUOTAS.response_codec(version)
    with pytest.raises(IllegalArgumentError, match="surrogate"):
        codec.write(DescribeClientQuotasResponse(0, 0, "\ud800", None))


def test_fields_may_be_null_only_where_the_version_allows() -> None:
    """A topic without a name is legal in metadata requests since version 10."""
    without_name = b"\2\0\0\0\0\0\0"
    with pytest.raises(MalformedMessageError, match="name is null"):
        METADATA.request_codec(9).read(without_name, 0)
    value, _ = METADATA.request_codec(10).read(b"\2" + bytes(16) + b"\0\0\0\0\0\0", 0)
    assert value.topics[0].name is None


def test_topics_are_deleted_by_name_in_two_ways() -> None:
    """One request holds both lists, and each version carries its own."""
    request = DeleteTopicsRequest([DeleteTopicState("a")], ["a"], 5)
    for version in range(DELETE_TOPICS.min_version, DELETE_TOPICS.max_version + 1):
        codec = DELETE_TOPICS.request_codec(version)
        found, _ = codec.read(codec.write(request), 0)
        assert ([one.name for one in found.topics], found.topic_names) == ((["a"], []) if version == 6 else ([], ["a"]))


def test_what_a_new_topic_is_given_is_told_since_version_5() -> None:
    """Before, it is unknown; and tags, such as the error of a client that may not see it, are passed over."""
    topic = b"\2" + b"\2a" + bytes(range(16)) + b"\0\0" + b"\0" + b"\0\0\0\3" + b"\0\1" + b"\1" + b"\1\0\2\0\x1d"
    value, _ = CREATE_TOPICS.response_codec(7).read(b"\0\0\0\5" + topic + b"\0", 0)
    assert value == CreateTopicsResponse(5, [CreatableTopicResult("a", bytes(range(16)), 0, None, 3, 1, [])])
    old = CREATE_TOPICS.response_codec(4)
    assert old.read(old.write(value), 0)[0] == CreateTopicsResponse(5, [CreatableTopicResult("a")])


def test_the_apis_are_kafkas() -> None:
    """Keys, versions and flexibility, as an independent implementation has them."""
    for api in KAFKAS_OWN:
        for version in range(api.min_version, api.max_version + 1):
            theirs = kio_class(api, version, "request")
            assert (theirs.__api_key__, theirs.__flexible__) == (api.key, api.is_flexible(version))
    assert sorted(APIS) == [3, 18, 48, 49, 50, 60, 10546]
