"""kafka-python, an implementation made independently of ours, writes and reads the same bytes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from kquota.wire.apis import API_VERSIONS, Api, write_request
from tests.kit.wire_values import KAFKAS_OWN, kafka_python_class, same_as_kafka_python, values

MESSAGES = [
    pytest.param(api, version, part, id=f"{api.name}{part}-v{version}")
    for api in KAFKAS_OWN
    for version in range(api.min_version, api.max_version + 1)
    for part in ("Request", "Response")
    if version <= kafka_python_class(api, part).max_version
]


@pytest.mark.parametrize(("api", "version", "part"), MESSAGES)
@given(data=st.data())
@settings(max_examples=25)
def test_kafka_python_reads_and_writes_the_same_bytes(api: Api, version: int, part: str, data: st.DataObject) -> None:
    """Bodies of every version that it knows."""
    message = api.request if part == "Request" else api.response
    codec: Any = api.request_codec(version) if part == "Request" else api.response_codec(version)
    value = data.draw(values(message, version))
    if api is API_VERSIONS and part == "Response":
        # With an error kafka-python takes it for version 0, in which brokers answer a version that they do not speak.
        value = structs.replace(value, error_code=0)
    written = codec.write(value)
    theirs = kafka_python_class(api, part).decode(written, version=version)
    assert same_as_kafka_python(value, theirs, version)
    if part == "Request":
        theirs.with_header()  # DeleteTopics looks at it, though none is written
    assert bytes(theirs.encode()) == written


@pytest.mark.parametrize(
    ("api", "version", "part"), [message for message in MESSAGES if message.values[2] == "Request"]
)
@given(data=st.data())
@settings(max_examples=25)
def test_frames_are_the_same(api: Api, version: int, part: str, data: st.DataObject) -> None:
    """With size and header."""
    value = data.draw(values(api.request, version))
    theirs = kafka_python_class(api, part).decode(api.request_codec(version).write(value), version=version)
    theirs.with_header(correlation_id=7, client_id="kq")
    assert bytes(theirs.encode(header=True, framed=True)) == write_request(api, version, 7, "kq", value)
