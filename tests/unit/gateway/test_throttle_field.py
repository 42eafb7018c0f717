"""The throttle time in responses of every version: where it is, and that nothing else changes."""

import dataclasses
import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota.errors import MalformedMessageError
from kquota.gateway.relay.actions import ACTIONS, Action
from kquota.gateway.relay.throttle_field import throttle_position, write_throttle
from tests.kit.actions import known_action
from tests.kit.kio_entities import (
    FOREIGN_TAGS,
    NO_TAGS,
    encoded,
    entities,
    entity_class,
    is_known,
    response_frame,
)
from tests.kit.wire_values import kio_bytes

RESPONSES = [
    pytest.param(
        action, entity_class(action.api_key, action.version, "response"), id=f"{action.name}-v{action.version}"
    )
    for action in ACTIONS.values()
    if is_known(action.api_key, action.version)
]
WALKED = [one for one in RESPONSES if one.values[0].has_throttle and one.values[0].throttle_at is None]  # type: ignore[union-attr]


def of_ms(time: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=time)


@pytest.mark.parametrize(("action", "kind"), RESPONSES)
@given(data=st.data())
@settings(max_examples=8)
def test_the_larger_throttle_time_is_written_and_nothing_else_changes(action: Action, kind: Any, data: Any) -> None:
    response = data.draw(entities(kind))
    assert encoded(response) == kio_bytes(response)
    ours = data.draw(st.integers(0, 2**31 - 1))
    expected = response
    if action.has_throttle:
        expected = dataclasses.replace(response, throttle_time=max(response.throttle_time, of_ms(ours)))
    if action.name == "ApiVersions" and response.error_code.value == 35:
        return
    for tags in (NO_TAGS, FOREIGN_TAGS):
        frame = bytearray(response_frame(response, tags))
        write_throttle(frame, action, ours)
        assert bytes(frame) == response_frame(expected, tags)


@pytest.mark.parametrize(("action", "kind"), RESPONSES)
@given(data=st.data())
@settings(max_examples=4)
def test_any_bytes_give_a_position_inside_or_are_malformed(action: Action, kind: Any, data: Any) -> None:
    frame = bytearray(response_frame(data.draw(entities(kind)), data.draw(st.sampled_from([NO_TAGS, FOREIGN_TAGS]))))
    for _ in range(data.draw(st.integers(0, 4))):
        frame[data.draw(st.integers(4, len(frame) - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    cut = data.draw(st.integers(0, len(frame)))
    for anything in (bytes(frame), bytes(frame[:cut]), data.draw(st.binary(max_size=60))):
        try:
            at = throttle_position(anything, action)
        except MalformedMessageError:
            continue
        assert at is None or action.body_at <= at <= len(anything) - 4
        assert at is not None or not action.has_throttle or action.name == "ApiVersions"


@pytest.mark.parametrize(("action", "kind"), WALKED)
@given(data=st.data())
@settings(max_examples=4)
def test_a_flexible_response_that_is_cut_off_has_no_throttle_time(action: Action, kind: Any, data: Any) -> None:
    """Where the field is the last one of a version that is not flexible, it is counted from the end of the frame."""
    frame = response_frame(data.draw(entities(kind)))
    at = throttle_position(frame, action)
    if at is None or not action.is_flexible:
        return
    for cut in range(at + 4):
        with pytest.raises(MalformedMessageError, match=f"{action.name} ends before its throttle time"):
            throttle_position(frame[:cut], action)


@pytest.mark.parametrize("version", [1, 2])
def test_versions_that_kafka_removed(version: int) -> None:
    """Produce 1 and 2: topics, then the time."""
    topics = b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\1" + b"\0\0\0\0" + b"\0\0" + b"\0" * (8 if version == 1 else 16)
    frame = bytearray(b"\0\0\0\0" + b"\0\0\0\7" + topics + b"\0\0\0\0")
    write_throttle(frame, known_action(0, version), 0x01020304)
    assert frame.endswith(topics + b"\1\2\3\4")


def test_a_response_of_produce_version_0_has_none() -> None:
    frame = bytearray(b"\0\0\0\x08\0\0\0\7\0\0\0\0")
    write_throttle(frame, known_action(0, 0), 5)
    assert frame == b"\0\0\0\x08\0\0\0\7\0\0\0\0"


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_the_error_unsupported_version_has_none(version: int) -> None:
    """Its body is that of version 0: error code, and what is supported of ApiVersions."""
    frame = bytearray(b"\0\0\0\x10\0\0\0\7\0\x23\0\0\0\1\0\x12\0\0\0\3")
    before = bytes(frame)
    write_throttle(frame, known_action(18, version), 1000)
    assert frame == before


def test_the_beginning_of_a_frame_does_where_the_field_is_among_the_first() -> None:
    fetch = known_action(1, 12)
    head = bytearray(b"\0\1\0\0" + b"\0\0\0\7" + b"\0" + b"\0\0\0\0")
    write_throttle(head, fetch, 500)
    assert head.endswith(b"\0\0\1\xf4")
    with pytest.raises(MalformedMessageError):
        write_throttle(head[:12], fetch, 500)


def test_a_time_that_no_message_can_hold_becomes_the_longest() -> None:
    frame = bytearray(b"\0\0\0\x08\0\0\0\7\0\0\0\0")
    write_throttle(frame, known_action(12, 1), 2**40)
    assert frame.endswith(b"\x7f\xff\xff\xff")


def test_thousands_of_millions_of_partitions_that_are_not_there_take_no_time() -> None:
    frame = b"\0\0\0\0" + b"\0\0\0\7" + b"\0" + b"\xff\xff\xff\xff\x07" * 20
    with pytest.raises(MalformedMessageError):
        throttle_position(frame, known_action(0, 12))
