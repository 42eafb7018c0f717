"""Requests and responses as frames, and two APIs under one key."""

import struct
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota.errors import MalformedMessageError, TooManyElementsError, UnsupportedVersionError
from kquota.wire.apis import (
    ALTER_CLIENT_QUOTAS,
    API_VERSIONS,
    APIS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    RESOLVE_CLIENT_QUOTAS,
    TOPIC_APIS,
    Api,
    RequestHeader,
    read_header,
    read_request,
    read_response,
    write_request,
    write_response,
)
from kquota.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kquota.wire.messages.client_quotas import (
    Alteration,
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityPart,
    Op,
)
from kquota.wire.messages.resolve_client_quotas import NamedPart, ResolveClientQuotasRequest
from kquota.wire.messages.scram_credentials import DescribeUserScramCredentialsRequest, UserName
from kquota.wire.primitives import uvarint
from tests.kit.wire_values import texts, values


def versions_of(apis: Iterable[Api]) -> list[Any]:
    return [
        pytest.param(api, version, id=f"{api.name}-v{version}")
        for api in apis
        for version in range(api.min_version, api.max_version + 1)
    ]


EVERY_VERSION = versions_of(APIS.values())
TOPIC_VERSIONS = versions_of(TOPIC_APIS)


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
@given(data=st.data())
@settings(max_examples=25)
def test_a_request_comes_back(api: Api, version: int, data: st.DataObject) -> None:
    """Header and body, whatever the client calls itself."""
    body = data.draw(values(api.request, version))
    client_id = data.draw(st.none() | texts)
    frame = write_request(api, version, 123, client_id, body)
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    request = read_request(frame[4:])
    if request.api is RESOLVE_CLIENT_QUOTAS:
        assert api is DESCRIBE_USER_SCRAM_CREDENTIALS
        return
    assert request.header == RequestHeader(api.key, version, 123, client_id or "")
    assert (request.api, request.body) == (api, body)


@pytest.mark.parametrize(("api", "version"), [*EVERY_VERSION, *TOPIC_VERSIONS])
@given(data=st.data())
@settings(max_examples=25)
def test_a_response_comes_back(api: Api, version: int, data: st.DataObject) -> None:
    """Correlation id and body."""
    body = data.draw(values(api.response, version))
    frame = write_response(api, version, -5, body)
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    assert read_response(api, version, frame[4:]) == (-5, body)


@pytest.mark.parametrize("version", [0, 1])
def test_elements_are_counted_in_all_lists_together(version: int) -> None:
    """Two entries, of one part and one op each: six. One more than allowed costs nothing but the error."""
    entry = Alteration([EntityPart("user", "alice")], [Op("producer_byte_rate", 1.0, remove=False)])
    body = AlterClientQuotasRequest([entry, entry], validate_only=False)
    frame = write_request(ALTER_CLIENT_QUOTAS, version, 1, "x", body)[4:]
    assert read_request(frame, max_elements=6).body == body
    with pytest.raises(TooManyElementsError, match="more than 5 elements"):
        read_request(frame, max_elements=5)


@pytest.mark.parametrize(("count", "is_read"), [(1_000, True), (1_001, False)])
def test_there_are_not_thousands_of_tagged_fields(count: int, is_read: bool) -> None:
    """Millions of them, of two bytes each, would take seconds to skip."""
    tags = uvarint(count) + b"\x05\0" * count
    frame = struct.pack(">hhih", 18, 3, 1, -1) + tags + b"\2a\2b\0"
    if is_read:
        assert read_request(frame).body == ApiVersionsRequest("a", "b")
    else:
        with pytest.raises(MalformedMessageError, match="1001 tagged fields"):
            read_request(frame)


@pytest.mark.parametrize(
    ("api", "since"), [(CREATE_TOPICS, 3), (DELETE_TOPICS, 2), (CREATE_PARTITIONS, 1), (DESCRIBE_CLIENT_QUOTAS, None)]
)
def test_from_which_version_on_a_client_waits_by_itself(api: Api, since: int | None) -> None:
    """As Java's response classes say; never after what is asked about quotas."""
    for version in range(api.max_version + 1):
        assert api.client_throttles(version) == (since is not None and version >= since)


@given(st.binary(max_size=80))
def test_any_frame_is_a_request_or_a_typed_error(frame: bytes) -> None:
    """Nothing else is ever raised."""
    for api in (0, 3, 18, 48, 49, 50, 60, 10546):
        for version in (0, 1):
            try:
                read_request(struct.pack(">hh", api, version) + frame)
            except (MalformedMessageError, UnsupportedVersionError):
                continue


def test_api_versions_answers_without_tags_in_its_header() -> None:
    """Whoever asks does not know yet whether the broker speaks flexible versions (KIP-511)."""
    frame = write_response(API_VERSIONS, 4, 9, ApiVersionsResponse(0, []))
    assert frame == b"\0\0\0\x0c" + b"\0\0\0\x09" + b"\0\0\1\0\0\0\0\0"
    flexible = write_response(DESCRIBE_CLIENT_QUOTAS, 1, 9, DescribeClientQuotasResponse(0, 0, None, []))
    assert flexible[4:9] == b"\0\0\0\x09\0"


def test_an_api_or_version_that_is_not_spoken() -> None:
    """The error says which, so that an answer can be made to it."""
    frame = write_request(API_VERSIONS, 4, 77, "sarama", ApiVersionsRequest("a", "1"))[4:]
    for api_key, version in ((18, 5), (19, 0), (48, 2), (48, -1)):
        with pytest.raises(UnsupportedVersionError) as error:
            read_request(struct.pack(">hh", api_key, version) + frame[4:])
        assert (error.value.api_key, error.value.api_version, error.value.correlation_id) == (api_key, version, 77)


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\x30\0\0\0\0\0\1\0", b"\0\x30\0\0\0\0\0\1\0\5abc"])
def test_a_frame_without_a_whole_header(frame: bytes) -> None:
    """Too short is malformed, whatever it was meant to be."""
    with pytest.raises(MalformedMessageError):
        read_header(frame)
    with pytest.raises(MalformedMessageError):
        read_request(frame)


def test_a_header_may_have_tags() -> None:
    """They stand before the body and are skipped."""
    frame = write_request(DESCRIBE_CLIENT_QUOTAS, 1, 1, "a", DescribeClientQuotasRequest([], strict=False))[4:]
    with_tags = frame[:11] + b"\1\7\2ab" + frame[12:]
    assert read_request(with_tags) == read_request(frame)


parts = st.lists(st.builds(NamedPart, texts, texts), max_size=16)


@given(parts, st.none() | texts)
def test_kip_546s_resolve_is_known_by_its_bytes(entity: list[NamedPart], client_id: str | None) -> None:
    """Key 50 with a plain count of at most 16 parts, and nothing behind them."""
    body = ResolveClientQuotasRequest(entity)
    frame = write_request(RESOLVE_CLIENT_QUOTAS, 0, 5, client_id, body)[4:]
    request = read_request(frame)
    assert (request.api, request.body) == (RESOLVE_CLIENT_QUOTAS, body)


@given(st.none() | st.lists(st.builds(UserName, texts), max_size=5))
def test_asking_for_credentials_is_not_taken_for_it(users: list[UserName] | None) -> None:
    """What Kafka's own tools send under key 50."""
    body = DescribeUserScramCredentialsRequest(users)
    frame = write_request(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 5, "admin", body)[4:]
    request = read_request(frame)
    assert (request.api, request.body) == (DESCRIBE_USER_SCRAM_CREDENTIALS, body)
    # Trailing bytes are ignored by Kafka, and do not make it anything else.
    assert read_request(frame + b"\0\0\0").api in (DESCRIBE_USER_SCRAM_CREDENTIALS, RESOLVE_CLIENT_QUOTAS)


def test_more_parts_than_an_entity_has_are_no_resolve() -> None:
    """Seventeen parts are read as the other API, and are no such request."""
    frame = write_request(RESOLVE_CLIENT_QUOTAS, 0, 5, "a", ResolveClientQuotasRequest([NamedPart("u", "x")] * 17))[4:]
    assert read_request(frame).api is DESCRIBE_USER_SCRAM_CREDENTIALS
