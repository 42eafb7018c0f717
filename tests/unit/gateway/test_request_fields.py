"""Fields of requests that are read in place: as kio writes them, in every version, whole or in pieces."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota.errors import MalformedMessageError
from kquota.gateway.relay.actions import ACTIONS, Action, Kind
from kquota.gateway.relay.request_fields import fetch_max_bytes_at, produce_acks_at, request_header_end
from tests.kit.actions import known_action
from tests.kit.kio_entities import (
    FOREIGN_TAGS,
    NO_TAGS,
    encoded,
    entities,
    entity_class,
    is_known,
    least,
    request_frame,
)

TAGS = st.sampled_from([NO_TAGS, FOREIGN_TAGS])
CLIENT_IDS = st.sampled_from([None, b"", b"me", b"\xff\xfe", "日本".encode(), b"x" * 300])


def produce_acks(frame: bytes, action: Action) -> int | None:
    """The acks of a Produce request; None while they are not there."""
    at = produce_acks_at(frame, action)
    return None if at is None else int.from_bytes(frame[at : at + 2], "big", signed=True)


def of_kind(*kinds: Kind) -> list[Any]:
    return [
        pytest.param(one, entity_class(one.api_key, one.version, "request"), id=f"{one.name}-v{one.version}")
        for one in ACTIONS.values()
        if one.kind in kinds and is_known(one.api_key, one.version)
    ]


@pytest.mark.parametrize(("action", "kind"), of_kind(*Kind))
def test_the_body_begins_where_the_header_ends(action: Action, kind: Any) -> None:
    request = least(kind)
    for client_id in (None, b"", b"me", b"x" * 300):
        for tags in (NO_TAGS, FOREIGN_TAGS):
            frame = request_frame(request, tags, client_id=client_id)
            end = request_header_end(frame, action)
            assert frame[end:] == encoded(request, tags)
            assert request_header_end(frame[:end], action) == end
            for cut in range(end):
                with pytest.raises(MalformedMessageError, match="ends too early"):
                    request_header_end(frame[:cut], action)


@pytest.mark.parametrize(("action", "kind"), of_kind(Kind.PRODUCE))
@given(data=st.data())
@settings(max_examples=30)
def test_acks_are_read_as_soon_as_they_are_there(action: Action, kind: Any, data: Any) -> None:
    """Also behind a transactional id, whose length in flexible versions is one more than it has bytes."""
    acks = data.draw(st.sampled_from([0, 1, -1]))
    request = dataclasses.replace(data.draw(entities(kind)), acks=acks)
    frame = request_frame(request, data.draw(TAGS), client_id=data.draw(CLIENT_IDS))
    answers = [produce_acks(frame[:size], action) for size in range(len(frame) + 1)]
    first = answers.index(acks)
    assert answers == [None] * first + [acks] * (len(answers) - first)
    assert produce_acks(frame + frame, action) == acks
    # Exactly so many bytes: the header, the transactional id, two of acks.
    of_id = _transactional_id_bytes(request, action)
    assert first == request_header_end(frame, action) + of_id + 2


def _transactional_id_bytes(request: Any, action: Action) -> int:
    if request.transactional_id is None:
        return 1 if action.is_flexible else 2
    size = len(request.transactional_id.encode())
    return size + ((1 if size < 127 else 2) if action.is_flexible else 2)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_acks_of_versions_that_kafka_removed_are_the_first_field(version: int) -> None:
    frame = b"\0\0\0\x10" + b"\0\0" + version.to_bytes(2, "big") + b"\0\0\0\7" + b"\0\2me" + b"\xff\xff" + b"\0\0"
    assert produce_acks(frame, known_action(0, version)) == -1


def test_acks_behind_the_end_of_their_request_are_malformed() -> None:
    frame = b"\0\0\0\x0d" + b"\0\0\0\0" + b"\0\0\0\7" + b"\0\2me" + b"\0"
    assert produce_acks(frame[:-1], known_action(0, 0)) is None
    for behind in (b"", b"\0\0\0\x0d"):
        with pytest.raises(MalformedMessageError):
            produce_acks(frame + behind, known_action(0, 0))
    with pytest.raises(MalformedMessageError):
        produce_acks(b"\xff\xff\xff\xff", known_action(0, 0))


@pytest.mark.parametrize(("action", "kind"), of_kind(Kind.FETCH))
@given(data=st.data())
@settings(max_examples=20)
def test_max_bytes_of_fetch_can_be_lowered_in_place(action: Action, kind: Any, data: Any) -> None:
    request = data.draw(entities(kind))
    tags, client_id = data.draw(TAGS), data.draw(CLIENT_IDS)
    frame = bytearray(request_frame(request, tags, client_id=client_id))
    at = fetch_max_bytes_at(bytes(frame), action)
    assert at is not None
    frame[at : at + 4] = (1234).to_bytes(4, "big")
    assert bytes(frame) == request_frame(dataclasses.replace(request, max_bytes=1234), tags, client_id=client_id)
    with pytest.raises(MalformedMessageError):
        fetch_max_bytes_at(bytes(frame[: at + 3]), action)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_first_versions_of_fetch_have_no_max_bytes(version: int) -> None:
    assert fetch_max_bytes_at(b"\0\0\0\0", known_action(1, version)) is None


@pytest.mark.parametrize(("action", "kind"), of_kind(Kind.FETCH, Kind.PRODUCE))
@given(data=st.data())
@settings(max_examples=20)
def test_any_bytes_are_read_or_malformed(action: Action, kind: Any, data: Any) -> None:
    frame = bytearray(request_frame(data.draw(entities(kind)), data.draw(TAGS), client_id=data.draw(CLIENT_IDS)))
    for _ in range(data.draw(st.integers(0, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    cut = data.draw(st.integers(0, len(frame)))
    reads = (produce_acks,) if action.kind is Kind.PRODUCE else (fetch_max_bytes_at,)
    for anything in (bytes(frame), bytes(frame[:cut]), data.draw(st.binary(max_size=60))):
        for read in (request_header_end, *reads):
            try:
                found = read(anything, action)
            except MalformedMessageError:
                continue
            assert found is None or read is produce_acks or 0 <= found <= len(anything)
