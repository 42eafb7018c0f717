"""Addresses of brokers in responses, as kio writes them: all of them replaced, and nothing else."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from kquota.errors import MalformedMessageError
from kquota.gateway.relay.actions import ACTIONS, Action, Kind
from kquota.gateway.relay.broker_addresses import rewrite_coordinators, rewrite_head, rewrite_produce
from kquota.wire.primitives import uvarint
from tests.kit.actions import known_action
from tests.kit.kio_entities import (
    FOREIGN_TAGS,
    NO_TAGS,
    element_class,
    entities,
    entity_class,
    is_known,
    least,
    response_frame,
)


def of_kind(kind: Kind, first: int = 0) -> list[Any]:
    return [
        pytest.param(one, entity_class(one.api_key, one.version, "response"), id=f"{one.name}-v{one.version}")
        for one in ACTIONS.values()
        if one.kind is kind and one.version >= first and is_known(one.api_key, one.version)
    ]


HEADS = of_kind(Kind.BROKERS)
COORDINATORS = of_kind(Kind.COORDINATOR)
PRODUCE = of_kind(Kind.PRODUCE, first=10)
TAGS = st.sampled_from([NO_TAGS, FOREIGN_TAGS])


def rewrite(node_id: int, host: str, port: int) -> tuple[str, int] | None:
    """Every third node has no address, every third keeps its own; the port depends on all that was handed over."""
    if node_id % 3 == 0:
        return None
    if node_id % 3 == 1:
        return host, port
    return f"gäteway-{host[:100]}", (node_id + port) % 65536


def of_nobody(one: Any) -> bool:
    return (node_id(one), one.host, one.port) == (-1, "", -1)


def node_id(one: Any) -> int:
    return int(one.broker_id if hasattr(one, "broker_id") else one.node_id)


def expected(elements: tuple[Any, ...]) -> tuple[Any, ...]:
    kept = []
    for one in elements:
        new = (one.host, one.port) if of_nobody(one) else rewrite(node_id(one), one.host, one.port)
        if new is not None:
            kept.append(dataclasses.replace(one, host=new[0], port=new[1]))
    return tuple(kept)


@pytest.mark.parametrize(("action", "kind"), HEADS)
@given(data=st.data())
@settings(max_examples=25)
def test_the_list_of_brokers_is_replaced_and_the_rest_is_not_touched(action: Action, kind: Any, data: Any) -> None:
    response = data.draw(entities(kind))
    tags = data.draw(TAGS)
    frame = response_frame(response, tags)
    of_controllers = getattr(response, "endpoint_type", 1) == 2
    wanted = dataclasses.replace(response, brokers=() if of_controllers else expected(response.brokers))
    found = rewrite_head(action, frame, rewrite)
    assert found is not None
    head, replaced = found
    assert head + frame[replaced:] == response_frame(wanted, tags)
    for cut in range(replaced):
        assert rewrite_head(action, frame[:cut], rewrite) is None
    for behind in (frame[:replaced], frame + b"\0\0\0", frame + frame):
        assert rewrite_head(action, behind, rewrite) == found


@pytest.mark.parametrize(("action", "kind"), COORDINATORS)
@given(data=st.data())
@settings(max_examples=40)
def test_coordinators_are_replaced_or_not_available(action: Action, kind: Any, data: Any) -> None:
    response = data.draw(entities(kind))
    tags = data.draw(TAGS)

    def coordinator(one: Any) -> Any:
        kept = expected((one,))
        if kept:
            return kept[0]
        error = {}
        if one.error_code is ErrorCode.none:
            error = {"error_code": ErrorCode.coordinator_not_available, "error_message": None}
            error = {name: value for name, value in error.items() if hasattr(one, name)}
        return dataclasses.replace(one, node_id=-1, host="", port=-1, **error)

    if action.version >= 4:
        wanted = dataclasses.replace(response, coordinators=tuple(map(coordinator, response.coordinators)))
    else:
        wanted = coordinator(response)
    assert rewrite_coordinators(action, response_frame(response, tags), rewrite) == response_frame(wanted, tags)


@pytest.mark.parametrize(("action", "kind"), COORDINATORS)
def test_nobody_stays_nobody(action: Action, kind: Any) -> None:
    """An error comes with node -1, without host and port."""
    nobody = {"node_id": -1, "host": "", "port": -1, "error_code": ErrorCode.group_authorization_failed}
    if action.version >= 4:
        response = least(kind, coordinators=(least(element_class(kind, "coordinators"), **nobody),))
    else:
        response = least(kind, **nobody)
    frame = response_frame(response)
    assert rewrite_coordinators(action, frame, lambda *_: ("gateway", 9193)) == frame


@pytest.mark.parametrize(("action", "kind"), PRODUCE)
@given(data=st.data())
@settings(max_examples=40)
def test_node_endpoints_are_replaced_or_left_out(action: Action, kind: Any, data: Any) -> None:
    response = data.draw(entities(kind))
    ports = [dataclasses.replace(one, port=abs(one.port) % 65535 + 1) for one in response.node_endpoints]
    response = dataclasses.replace(response, node_endpoints=tuple(ports))
    tags = data.draw(TAGS)
    frame = response_frame(response, tags)
    wanted = dataclasses.replace(response, node_endpoints=expected(response.node_endpoints))
    found = rewrite_produce(action, frame, rewrite)
    assert found == response_frame(wanted, tags)
    assert response.node_endpoints or found is frame


@pytest.mark.parametrize(("action", "kind"), PRODUCE)
@pytest.mark.parametrize("port", [1, 255, 256, 0x7F00, 0xFF00, 65535])
@pytest.mark.parametrize("rack", [None, "", "a", "\0"])
def test_no_port_and_no_rack_looks_like_the_end_of_an_answer_without_addresses(
    action: Action, kind: Any, port: int, rack: str | None
) -> None:
    endpoint = least(element_class(kind, "node_endpoints"), node_id=2, port=port, rack=rack)
    frame = response_frame(least(kind, node_endpoints=(endpoint,)))
    rewritten = rewrite_produce(action, frame, lambda *_: ("gateway", 9193))
    assert b"gateway" in rewritten


def test_versions_without_node_endpoints_are_returned_as_they_are() -> None:
    frame = b"anything"
    assert rewrite_produce(known_action(0, 9), frame, rewrite) is frame


def test_a_list_of_brokers_is_bounded() -> None:
    """By its number, as soon as that is known, and by its bytes, also while they arrive."""
    metadata = known_action(3, 9)
    head = (2**30).to_bytes(4, "big") + b"\0\0\0\7" + b"\0" + b"\0\0\0\0"
    with pytest.raises(MalformedMessageError, match="with 10001 brokers"):
        rewrite_head(metadata, head + uvarint(10_002), rewrite)
    broker = b"\0\0\0\2" + b"\xff\xff\x01" + b"x" * 16382 + b"\0\0\0\1" + b"\0\0"
    many = head + uvarint(101) + broker * 100
    with pytest.raises(MalformedMessageError, match="more than 1048576 bytes"):
        rewrite_head(metadata, many, rewrite)
    with pytest.raises(MalformedMessageError, match="more than 1048576 bytes"):
        rewrite_head(metadata, many[: 1024 * 1024 + 1], rewrite)
    assert rewrite_head(metadata, many[: 1024 * 1024], rewrite) is None
    ten_thousand = head + uvarint(10_001) + (b"\0\0\0\2" + b"\2a" + b"\0\0\0\1" + b"\0\0") * 10_000
    found = rewrite_head(metadata, ten_thousand, rewrite)
    assert found is not None
    assert found[1] == len(ten_thousand)


def test_a_list_that_does_not_end_with_its_frame_is_malformed() -> None:
    """Whether what follows the frame is there or not."""
    broker = b"\0\0\0\2" + b"\2a" + b"\0\0\0\1" + b"\0\0"
    body = b"\0\0\0\7" + b"\0" + b"\0\0\0\0" + b"\3" + broker
    frame = len(body).to_bytes(4, "big") + body
    for behind in (b"", broker, broker + broker):
        with pytest.raises(MalformedMessageError, match="Metadata ends too early"):
            rewrite_head(known_action(3, 9), frame + behind, rewrite)
    with pytest.raises(MalformedMessageError):
        rewrite_head(known_action(3, 9), b"\xff\xff\xff\xff", rewrite)


def test_errors_of_the_rewriter_are_its_own() -> None:
    """None is taken for bytes that are still to come."""

    def fails(*_: object) -> tuple[str, int]:
        raise IndexError("mine")

    frame = response_frame(least(entity_class(10, 1, "response"), node_id=5))
    with pytest.raises(IndexError, match="mine"):
        rewrite_coordinators(known_action(10, 1), frame, fails)
    broker = b"\0\0\0\2" + b"\2a" + b"\0\0\0\1" + b"\0\0"
    with pytest.raises(IndexError, match="mine"):
        rewrite_head(known_action(3, 9), b"\0\0\1\0" + b"\0\0\0\7" + b"\0" + b"\0\0\0\0" + b"\2" + broker, fails)


@pytest.mark.parametrize(("action", "kind"), [*HEADS, *COORDINATORS, *PRODUCE])
@given(data=st.data())
@settings(max_examples=25)
def test_any_bytes_are_rewritten_or_malformed(action: Action, kind: Any, data: Any) -> None:
    frame = bytearray(response_frame(data.draw(entities(kind)), data.draw(TAGS)))
    for _ in range(data.draw(st.integers(0, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    cut = data.draw(st.integers(0, len(frame)))
    for anything in (bytes(frame), bytes(frame[:cut]), data.draw(st.binary(max_size=60))):
        try:
            if action.kind is Kind.BROKERS:
                found = rewrite_head(action, anything, rewrite)
                assert found is None or found[1] <= len(anything)
            elif action.kind is Kind.COORDINATOR:
                written = rewrite_coordinators(action, anything, rewrite)
                assert int.from_bytes(written[:4], "big") == len(written) - 4
            else:
                rewrite_produce(action, anything, rewrite)
        except MalformedMessageError:
            continue
