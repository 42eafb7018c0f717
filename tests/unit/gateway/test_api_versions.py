"""What clients learn from ApiVersions: only what is forwarded, and all else as the broker said it."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from kquota.errors import MalformedMessageError
from kquota.gateway.relay.actions import ACTIONS
from kquota.gateway.relay.api_versions import FORWARDED, clamp_api_versions
from tests.kit.actions import api_number
from tests.kit.kio_entities import FOREIGN_TAGS, NO_TAGS, element_class, entities, entity_class, least, response_frame

VERSIONS = range(5)
OWN = {48: (0, 1), 49: (0, 1), 50: (0, 0), 10546: (0, 0)}
TAGS = st.sampled_from([NO_TAGS, FOREIGN_TAGS])


def response_class(version: int) -> Any:
    return entity_class(18, version, "response")


def api_class(version: int) -> Any:
    return element_class(response_class(version), "api_keys")


def ranges(version: int) -> st.SearchStrategy[Any]:
    keys = st.one_of(st.sampled_from(sorted({*FORWARDED, 4, 58, 78, 79})), st.integers(-5, 200))
    number = st.integers(0, 20)
    kind = api_class(version)
    return st.lists(st.builds(kind, api_key=keys, min_version=number, max_version=number), max_size=12).map(tuple)


def in_range(one: Any) -> set[int]:
    return set(range(one.min_version, one.max_version + 1))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("own", [{}, OWN], ids=["forwards quotas", "answers quotas"])
@given(data=st.data())
@settings(max_examples=40)
def test_only_what_is_forwarded_is_offered(version: int, own: dict[int, tuple[int, int]], data: Any) -> None:
    """Told from the table itself: a version is offered where the broker has it and the table does."""
    error = data.draw(st.sampled_from([ErrorCode.none, ErrorCode.cluster_authorization_failed]))
    response = dataclasses.replace(
        data.draw(entities(response_class(version))), error_code=error, api_keys=data.draw(ranges(version))
    )
    expected = []
    for one in response.api_keys:
        versions = {number for number in in_range(one) if api_number(one.api_key, number) in ACTIONS}
        if one.api_key in own:
            first, last = own[one.api_key]
            expected.append(dataclasses.replace(one, min_version=first, max_version=last))
        elif versions:
            expected.append(dataclasses.replace(one, min_version=min(versions), max_version=max(versions)))
    tags = data.draw(TAGS)
    added = {key for key in own if error is ErrorCode.none} - {one.api_key for one in response.api_keys}
    clamped = clamp_api_versions(response_frame(response, tags), version, own)
    wanted = response_frame(dataclasses.replace(response, api_keys=tuple(expected)), tags)
    if not added:
        assert clamped == wanted
        return
    assert int.from_bytes(clamped[:4], "big") == len(clamped) - 4
    entry_tags = b"\0" if version >= 3 else b""
    for key in added:
        first, last = own[key]
        entry = b"".join(number.to_bytes(2, "big") for number in (key, first, last)) + entry_tags
        assert entry in clamped
    assert len(clamped) == len(wanted) + len(added) * (6 + len(entry_tags))
    assert clamped[4:10] == wanted[4:10]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_error_unsupported_version_has_the_body_of_version_0(version: int) -> None:
    """A broker that is asked for more than it speaks says what it speaks of ApiVersions; nothing is added to that."""
    own_range = api_class(0)(api_key=18, min_version=0, max_version=9)
    response = least(response_class(0), error_code=ErrorCode.unsupported_version, api_keys=(own_range,))
    clamped = dataclasses.replace(response, api_keys=(dataclasses.replace(own_range, max_version=4),))
    assert clamp_api_versions(response_frame(response), version, OWN) == response_frame(clamped)


def test_transactions_are_not_lost() -> None:
    """Produce 12 and later is what lets clients add partitions to a transaction by producing to them (KIP-890)."""
    assert FORWARDED[0][1] >= 12
    assert FORWARDED[1] == (0, 15)


def test_every_version_between_the_first_and_the_last_is_in_the_table() -> None:
    assert {key << 16 | number for key, (first, last) in FORWARDED.items() for number in range(first, last + 1)} == set(
        ACTIONS
    )


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
@settings(max_examples=60)
def test_any_bytes_are_clamped_or_malformed(version: int, data: Any) -> None:
    frame = bytearray(response_frame(data.draw(entities(response_class(version))), data.draw(TAGS)))
    for _ in range(data.draw(st.integers(0, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    cut = data.draw(st.integers(0, len(frame)))
    for anything in (bytes(frame), bytes(frame[:cut]), data.draw(st.binary(max_size=60))):
        try:
            clamped = clamp_api_versions(anything, version, OWN)
        except MalformedMessageError:
            continue
        assert int.from_bytes(clamped[:4], "big") == len(clamped) - 4


def test_a_list_that_is_announced_takes_no_time() -> None:
    for count in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07"):
        with pytest.raises(MalformedMessageError):
            clamp_api_versions(b"\0\0\0\0\0\0\0\7\0\0" + count, 3 if len(count) == 5 else 0)
