"""How connections through the gateway end: who leaves, who fails, and what is still delivered."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from kquota.errors import FrameSizeError, KquotaError, MalformedMessageError, ProtocolError, UnsupportedVersionError
from kquota.gateway.identity.connection_identity import Identities
from kquota.gateway.relay.broker_connection import CLOSING_S, BrokerConnection
from kquota.metering.callback import KafkaPrincipal
from tests.kit.relayed import End, Relayed, answer, fetch_request, frames, produce_request, request
from tests.kit.virtual_loop import run_virtually

HEARTBEAT = 12
API_VERSIONS = request(18, 0, 1, b"")
NO_VERSIONS = answer(1, bytes(6))


def heartbeat(correlation_id: int) -> bytes:
    return request(HEARTBEAT, 3, correlation_id, b"anything")


def alive(correlation_id: int) -> bytes:
    return answer(correlation_id, struct.pack(">ih", 0, 0))


def produced(correlation_id: int) -> bytes:
    return answer(correlation_id, b"\0\1" + bytes(5))


async def connected(**options: Any) -> Relayed:
    relayed = Relayed(**options)
    await relayed.connect()
    return relayed


class Dialled(Relayed):
    """Whose broker is connected to when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.may_dial = asyncio.Event()
        self.was_cancelled = False
        self.error: BaseException | None = None

    async def _dial(self, client: Any, node_id: int | None) -> BrokerConnection:
        try:
            await self.may_dial.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        if self.error is not None:
            raise self.error
        return await super()._dial(client, node_id)


# The client leaves.


def test_a_client_that_closes_its_side_gets_the_answers_under_way() -> None:
    async def work() -> None:
        relayed = await connected()
        relayed.client_sends(heartbeat(1) + heartbeat(2) + heartbeat(3)[:9])
        assert relayed.client.eof_received()
        await relayed.settle()
        relayed.broker_sends(alive(1))
        await relayed.settle()
        assert not relayed.has_ended
        relayed.broker_sends(alive(2))
        await relayed.settle()
        assert frames(relayed.to_client.take()) == [alive(1), alive(2)]
        assert relayed.has_ended
        assert relayed.failure is None

    run_virtually(work())


def test_a_client_that_leaves_within_a_request_is_not_waited_for() -> None:
    """The broker will not answer what it did not get all of."""

    async def work() -> None:
        relayed = await connected()
        relayed.client_sends(heartbeat(1) + produce_request(2, bytes(1000))[:500])
        relayed.client.eof_received()
        await relayed.settle()
        assert relayed.has_ended
        assert relayed.failure is None

    run_virtually(work())


def test_what_a_muted_client_has_sent_before_it_left_is_delivered_when_its_wait_is_over() -> None:
    async def work() -> None:
        relayed = Relayed()
        relayed.limit("producer_byte_rate", 1000.0, client_id="c")
        await relayed.connect()
        first, second = produce_request(1, bytes(30_000), acks=0), produce_request(2, bytes(10), acks=0)
        relayed.client_sends(first + second)
        relayed.client.eof_received()
        await relayed.settle()
        assert relayed.to_broker.take() == first
        assert not relayed.has_ended
        await asyncio.sleep(1000)
        assert relayed.to_broker.take() == second
        assert relayed.has_ended
        assert relayed.failure is None

    run_virtually(work())


class Tls:
    """Of a client without a certificate."""

    def getpeercert(self, *, binary_form: bool) -> None:
        assert binary_form


async def over_its_quota() -> tuple[Relayed, bytes, bytes]:
    """A connection with TLS whose client has to wait, and what it has sent: what makes it wait, and what waits."""
    relayed = Relayed()
    relayed.limit("producer_byte_rate", 1000.0, client_id="c")
    relayed.to_client = End({"ssl_object": Tls()})
    await relayed.connect()
    first = produce_request(1, bytes(30_000), acks=0)
    waiting = produce_request(2, bytes(10_000), acks=0) + produce_request(3, bytes(10), acks=0)
    relayed.client_sends(first + waiting)
    await relayed.settle()
    assert relayed.client.is_muted
    assert relayed.to_broker.take() == first
    return relayed, first, waiting


def test_what_a_muted_client_has_sent_before_it_closed_tls_is_delivered_and_charged() -> None:
    """TLS has no half of a connection that stays open: there is no time to wait."""

    async def work() -> None:
        relayed, _, waiting = await over_its_quota()
        meter = relayed.quotas.of(1).managers.produce.meter("ANONYMOUS", "c")
        assert meter is not None
        now_ms = relayed.client.now_ms
        before = meter.measure(now_ms)
        assert not relayed.client.eof_received()
        relayed.to_client.lose()
        await relayed.settle()
        assert relayed.to_broker.take() == waiting
        assert relayed.has_ended
        assert relayed.failure is None
        assert meter.measure(now_ms) > before * 1.3

    run_virtually(work())


def test_what_waits_behind_it_is_lost_with_a_connection_that_is_broken_or_closed_here() -> None:
    async def work() -> None:
        for end in ("reset", "aborted", "drained"):
            relayed, *_ = await over_its_quota()
            if end == "reset":
                relayed.to_client.lose(ConnectionResetError())
            elif end == "aborted":
                relayed.client.abort()
            else:
                relayed.client.end()
                assert await relayed.ends()
            await relayed.settle()
            assert relayed.to_broker.take() == b"", end
            assert relayed.has_ended

    run_virtually(work())


def test_a_mistake_in_what_waits_behind_a_close_of_tls_is_reported() -> None:
    async def work() -> None:
        relayed, _, waiting = await over_its_quota()
        relayed.client_sends(struct.pack(">ihhih", 10, 12, 3, 1, 20) + bytes(50))
        relayed.to_client.lose()
        await relayed.settle()
        assert relayed.to_broker.take() == waiting
        assert isinstance(relayed.failure, MalformedMessageError)

    run_virtually(work())


def test_what_was_sent_before_the_broker_is_connected_to_is_delivered() -> None:
    async def work() -> None:
        relayed = Dialled()
        await relayed.connect()
        relayed.client_sends(produce_request(1, b"x", acks=0))
        assert relayed.to_client.is_paused
        relayed.client.eof_received()
        await relayed.settle()
        assert not relayed.to_client.has_closed
        relayed.may_dial.set()
        await relayed.settle()
        assert relayed.to_broker.take() == produce_request(1, b"x", acks=0)
        assert relayed.has_ended

    run_virtually(work())


def test_nobody_is_dialled_for_a_client_that_left() -> None:
    async def work() -> None:
        relayed = Dialled()
        await relayed.connect()
        relayed.to_client.lose()
        await relayed.settle()
        assert relayed.was_cancelled
        assert relayed.broker is None

    run_virtually(work())


def test_a_client_that_left_makes_nothing_of_late_answers() -> None:
    async def work() -> None:
        relayed = await connected()
        relayed.client_sends(heartbeat(1) + request(18, 0, 2, b""))
        relayed.to_client.lose()
        relayed.to_broker.take()
        relayed.broker_sends(alive(1))
        await relayed.settle()
        assert relayed.to_broker.take() == b""  # also not of the request that waited for it
        assert relayed.failure is None

    run_virtually(work())


# The broker leaves, or cannot be reached.


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError(), TimeoutError(), KquotaError("no"), UnicodeError("label too long"), KeyError(7)]
)
def test_a_broker_that_cannot_be_dialled_costs_the_connection(error: Exception) -> None:
    async def work() -> None:
        relayed = Dialled()
        relayed.error = error
        await relayed.connect()
        relayed.client_sends(heartbeat(1))
        relayed.may_dial.set()
        await relayed.settle()
        assert relayed.to_client.was_aborted
        assert relayed.failure is error

    run_virtually(work())


@pytest.mark.parametrize("error", [None, ConnectionResetError()])
def test_answers_before_the_broker_left_are_delivered(error: Exception | None) -> None:
    async def work() -> None:
        relayed = await connected()
        relayed.client_sends(heartbeat(1) + heartbeat(2))
        relayed.broker_sends(alive(1) + alive(2)[:7])
        relayed.to_broker.lose(error)
        await relayed.settle()
        assert relayed.to_client.take() == alive(1)
        assert relayed.to_client.has_closed
        assert not relayed.to_client.was_aborted  # or they might be lost on their way
        assert isinstance(relayed.failure, ConnectionResetError)

    run_virtually(work())


def test_a_broker_that_leaves_while_its_client_waits_costs_the_connection_at_once() -> None:
    async def work() -> None:
        relayed = Relayed()
        relayed.limit("producer_byte_rate", 1000.0, client_id="c")
        await relayed.connect()
        relayed.client_sends(produce_request(1, bytes(30_000)) + heartbeat(2))
        relayed.to_broker.lose()
        await relayed.settle()
        assert relayed.has_ended
        await asyncio.sleep(1000)  # its timer does nothing

    run_virtually(work())


def test_a_broker_that_leaves_instead_of_an_answer_that_is_read_whole_costs_the_connection() -> None:
    async def work() -> None:
        relayed = await connected()
        relayed.client_sends(API_VERSIONS)
        await relayed.settle()
        relayed.broker_sends(NO_VERSIONS[:9])
        relayed.to_broker.lose()
        await relayed.settle()
        assert relayed.has_ended
        assert relayed.to_client.take() == b""

    run_virtually(work())


class Hung(End):
    """Takes nothing more, so what was written to it stays, and it is not closed before it is aborted."""

    def __init__(self) -> None:
        super().__init__()
        self.unsent_bytes = 1

    def close(self) -> None:
        self.has_closed = True

    def abort(self) -> None:
        self.was_aborted = True
        self.lose()


def test_a_broker_that_takes_nothing_more_is_given_up_some_time_after_its_client_left() -> None:
    async def work() -> None:
        relayed = Relayed()
        relayed.to_broker = Hung()
        await relayed.connect()
        relayed.client_sends(produce_request(1, b"x", acks=0))
        relayed.to_client.lose()
        await asyncio.sleep(CLOSING_S / 2)
        assert relayed.to_broker.has_closed
        assert not relayed.to_broker.was_aborted
        assert relayed.relay.closing_brokers == {relayed.broker}
        await asyncio.sleep(CLOSING_S)
        assert relayed.to_broker.was_aborted
        assert not relayed.relay.closing_brokers

    run_virtually(work())


@pytest.mark.parametrize("is_hung", [False, True])
def test_at_the_end_brokers_have_some_time_to_take_what_they_were_sent(is_hung: bool) -> None:
    async def work() -> None:
        first = Relayed()
        both = [first, Relayed(beside=first)]
        if is_hung:
            both[1].to_broker = Hung()
        for one in both:
            await one.connect()
            one.to_client.lose()
        clock = asyncio.get_running_loop().time
        begun = clock()
        await first.relay.close(within_s=7)
        assert clock() - begun == pytest.approx(7 if is_hung else 0, abs=0.01)
        assert not first.relay.closing_brokers
        assert [one.to_broker.was_aborted for one in both] == [False, is_hung]
        assert all(one.has_ended for one in both)

    run_virtually(work())


# Nobody leaves, the gateway is to end.


def test_at_the_end_requests_under_way_are_answered_and_no_further_one_is_passed_on() -> None:
    async def work() -> None:
        relayed = await connected()
        relayed.client_sends(heartbeat(1) + heartbeat(2))
        relayed.to_broker.take()
        relayed.client.end()
        relayed.client_sends(heartbeat(3))
        relayed.broker_sends(alive(1))
        await relayed.settle()
        assert not relayed.has_ended
        relayed.broker_sends(alive(2))
        await relayed.settle()
        assert relayed.to_broker.take() == b""
        assert frames(relayed.to_client.take()) == [alive(1), alive(2)]
        assert await relayed.ends()
        assert relayed.failure is None

    run_virtually(work())


@pytest.mark.parametrize("acks", [-1, 0])
def test_at_the_end_a_request_that_was_begun_is_passed_on(acks: int) -> None:
    async def work() -> None:
        relayed = await connected()
        one = produce_request(1, bytes(1000), acks=acks)
        relayed.client_sends(one[:600])
        relayed.client.end()
        await relayed.settle()
        assert not relayed.has_ended
        assert not relayed.to_client.is_paused
        relayed.client_sends(one[600:] + heartbeat(2))
        await relayed.settle()
        assert relayed.to_broker.take() == one
        if acks:
            assert not relayed.has_ended
            relayed.broker_sends(produced(1))
            await relayed.settle()
            assert relayed.to_client.take() == produced(1)
        assert await relayed.ends()

    run_virtually(work())


def test_at_the_end_a_muted_client_is_closed_at_once() -> None:
    """It has had its answer; the wait is no reason to stay."""

    async def work() -> None:
        relayed = Relayed()
        relayed.limit("producer_byte_rate", 1000.0, client_id="c")
        await relayed.connect()
        relayed.client_sends(produce_request(1, bytes(30_000)) + produce_request(2, bytes(10)))
        relayed.to_broker.take()
        relayed.client.end()
        await relayed.settle()
        assert not relayed.has_ended
        relayed.broker_sends(produced(1))
        await relayed.settle()
        assert len(frames(relayed.to_client.take())) == 1
        assert relayed.to_broker.take() == b""
        assert await relayed.ends()

    run_virtually(work())


def test_at_the_end_a_request_that_is_read_whole_is_answered() -> None:
    async def work() -> None:
        relayed = await connected()
        relayed.client_sends(API_VERSIONS + heartbeat(2))
        await relayed.settle()
        relayed.to_broker.take()
        relayed.client.end()
        await relayed.settle()
        assert not relayed.has_ended
        relayed.broker_sends(NO_VERSIONS)
        await relayed.settle()
        assert relayed.to_client.take() == NO_VERSIONS
        assert relayed.to_broker.take() == b""
        assert await relayed.ends()

    run_virtually(work())


def test_at_the_end_who_has_asked_nothing_is_closed_at_once() -> None:
    async def work() -> None:
        for relayed in (await connected(), Dialled()):
            if relayed.broker is None:
                await relayed.connect()
            relayed.client.end()
            await relayed.settle()
            assert await relayed.ends()

    run_virtually(work())


@pytest.mark.parametrize("is_drain", [False, True])
def test_an_answer_that_has_begun_to_come_is_passed_on_to_its_end(is_drain: bool) -> None:
    """However long that takes: a client that closed its side, or a gateway that is to end, waits for all of it."""

    async def work() -> None:
        relayed = await connected()
        relayed.client_sends(fetch_request(1, 1000))
        if is_drain:
            relayed.client.end()
        else:
            relayed.client.eof_received()
        whole = answer(1, bytes(1000))
        for at in range(0, len(whole), 200):
            assert not relayed.to_client.has_closed
            relayed.broker_sends(whole[at : at + 200])
            if at + 200 < len(whole):
                await asyncio.sleep(2)
        assert relayed.to_client.take() == whole
        await asyncio.sleep(2)
        assert relayed.has_ended

    run_virtually(work())


# Whole requests have the connection for themselves.


def test_a_request_that_is_read_whole_waits_for_the_answers_before_and_those_behind_wait_for_its_own() -> None:
    async def work() -> None:
        relayed = await connected()
        relayed.client_sends(heartbeat(5) + API_VERSIONS + heartbeat(6), iter((3, 30, 5, 9, 1, 100)).__next__)
        await relayed.settle()
        assert relayed.to_broker.take() == heartbeat(5)
        assert relayed.to_client.is_paused
        relayed.broker_sends(alive(5))
        await relayed.settle()
        assert relayed.to_broker.take() == API_VERSIONS
        relayed.broker_sends(NO_VERSIONS)
        await relayed.settle()
        assert relayed.to_broker.take() == heartbeat(6)
        relayed.broker_sends(alive(6))
        assert frames(relayed.to_client.take()) == [alive(5), NO_VERSIONS, alive(6)]
        relayed.close()

    run_virtually(work())


def test_who_has_asked_only_for_versions_is_not_taken_for_one_that_never_asked() -> None:
    """Clients open connections to all brokers, and use some of them much later."""

    async def work() -> None:
        relayed = await connected()
        assert relayed.client.incomplete_since is not None
        relayed.client_sends(API_VERSIONS)
        await relayed.settle()
        relayed.broker_sends(NO_VERSIONS)
        await relayed.settle()
        assert relayed.client.incomplete_since is None
        relayed.close()

    run_virtually(work())


def test_who_has_not_logged_in_is_taken_for_one_that_never_asked() -> None:
    async def work() -> None:
        relayed = await connected(identities=Identities("SASL_PLAINTEXT"))
        relayed.client_sends(API_VERSIONS)
        await relayed.settle()
        relayed.broker_sends(NO_VERSIONS)
        await relayed.settle()
        assert relayed.client.incomplete_since is not None
        relayed.close()

    run_virtually(work())


# What nobody should send.

HUGE = struct.pack(">i", 2**31 - 1)


@pytest.mark.parametrize(
    ("hostile", "expected"),
    [
        pytest.param(struct.pack(">ihhih", -1, 12, 3, 1, 0), FrameSizeError, id="negative size"),
        pytest.param(struct.pack(">ihhih", 0, 12, 3, 1, 0), FrameSizeError, id="no size"),
        pytest.param(struct.pack(">ihhih", 9, 12, 3, 1, 0), FrameSizeError, id="smaller than any"),
        pytest.param(struct.pack(">ihhih", 100 * 2**20 + 1, 12, 3, 1, 0), FrameSizeError, id="too large"),
        pytest.param(struct.pack(">ihhih", 100 * 2**20, 18, 0, 1, 0), FrameSizeError, id="too large to be read whole"),
        pytest.param(request(999, 0, 1, b""), UnsupportedVersionError, id="unknown API"),
        pytest.param(request(1, 16, 1, b""), UnsupportedVersionError, id="version that is not offered"),
        pytest.param(request(17, 1, 1, b"\0\5PLAIN"), ProtocolError, id="login where there is none"),
        pytest.param(struct.pack(">ihhih", 10, 12, 3, 1, 20) + bytes(50), MalformedMessageError, id="client id"),
        pytest.param(struct.pack(">ihhih", 12, 0, 3, 1, 0) + b"\0" * 40, MalformedMessageError, id="no acks"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n", FrameSizeError, id="HTTP"),
        pytest.param(b"\x16\x03\x01\x02\0\1\0\1\xfc\3\3" + bytes(40), FrameSizeError, id="TLS"),
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_a_request_that_cannot_be_costs_the_connection_and_not_what_came_before(
    hostile: bytes, expected: type[Exception], size: int
) -> None:
    async def work() -> None:
        relayed = await connected()
        before = produce_request(1, b"x" * 50, acks=0) + produce_request(2, b"", acks=0)
        relayed.client_sends(before + hostile, lambda: 1000 if relayed.to_client.has_closed else size)
        await relayed.settle()
        assert relayed.to_broker.take() == before
        assert relayed.has_ended
        assert type(relayed.failure) is expected

    run_virtually(work())


def test_a_request_that_is_too_large_costs_the_connection_also_where_it_begins_as_the_one_before() -> None:
    async def work() -> None:
        relayed = Relayed()
        one = produce_request(1, bytes(100))
        relayed.relay.max_request_bytes = len(one) - 4
        relayed = Relayed(beside=relayed)
        await relayed.connect()
        relayed.client_sends(one)
        relayed.broker_sends(produced(1))
        relayed.client_sends(one)
        relayed.broker_sends(produced(1))
        relayed.client_sends(produce_request(2, bytes(101)))
        await relayed.settle()
        assert relayed.to_broker.take() == one * 2
        assert isinstance(relayed.failure, FrameSizeError)

    run_virtually(work())


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(alive(3), id="wrong correlation id"),
        pytest.param(struct.pack(">ii", -1, 2), id="negative size"),
        pytest.param(struct.pack(">ii", 3, 2), id="smaller than any"),
        pytest.param(alive(2) + alive(3), id="nobody asked"),
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_an_answer_that_cannot_be_costs_the_connection_and_not_what_came_before(hostile: bytes, size: int) -> None:
    async def work() -> None:
        relayed = await connected()
        relayed.client_sends(heartbeat(1) + heartbeat(2))
        relayed.broker_sends(alive(1) + hostile, lambda: 1000 if relayed.to_broker.has_closed else size)
        await relayed.settle()
        assert relayed.to_client.take() == alive(1) + (alive(2) if hostile.startswith(alive(2)) else b"")
        assert relayed.has_ended
        assert isinstance(relayed.failure, ProtocolError)

    run_virtually(work())


def test_a_list_of_brokers_in_an_answer_of_2_gib_costs_the_connection() -> None:
    """With the gateway's addresses in it its size could not be written."""

    async def work() -> None:
        relayed = await connected()
        relayed.client_sends(request(3, 0, 1, bytes(4)))
        relayed.broker_sends(HUGE + struct.pack(">iiih1si", 1, 1, 1, 1, b"a", 9092) + bytes(4))
        await relayed.settle()
        assert isinstance(relayed.failure, FrameSizeError)

    run_virtually(work())


@pytest.mark.parametrize("hostile", [HUGE + bytes(4), struct.pack(">ii", -5, 1), struct.pack(">ii", 2, 1)])
def test_an_answer_of_no_size_to_a_request_that_is_read_whole_costs_the_connection(hostile: bytes) -> None:
    async def work() -> None:
        relayed = await connected()
        relayed.client_sends(API_VERSIONS)
        await relayed.settle()
        relayed.broker_sends(hostile)
        await relayed.settle()
        assert relayed.has_ended
        assert isinstance(relayed.failure, ProtocolError)

    run_virtually(work())


def test_an_answer_to_another_request_is_none_to_one_that_is_read_whole() -> None:
    async def work() -> None:
        relayed = await connected()
        relayed.client_sends(API_VERSIONS)
        await relayed.settle()
        relayed.broker_sends(answer(2, bytes(6)))
        await relayed.settle()
        assert relayed.to_client.take() == b""
        assert isinstance(relayed.failure, ProtocolError)

    run_virtually(work())


def test_requests_before_the_login_are_refused() -> None:
    async def work() -> None:
        for one in (heartbeat(1), produce_request(1, b""), fetch_request(1, 1), request(19, 4, 1, b"")):
            relayed = await connected(identities=Identities("SASL_PLAINTEXT"))
            relayed.client_sends(one)
            await relayed.settle()
            assert relayed.to_broker.take() == b""
            assert relayed.has_ended
            assert isinstance(relayed.failure, ProtocolError)

    run_virtually(work())


def test_a_later_version_of_api_versions_is_for_the_broker_to_answer() -> None:
    async def work() -> None:
        relayed = await connected()
        later = request(18, 99, 1, b"\0anything")
        relayed.client_sends(later)
        await relayed.settle()
        assert relayed.to_broker.take() == later
        unsupported = answer(1, struct.pack(">hihhh", 35, 1, 18, 0, 4))
        relayed.broker_sends(unsupported)
        await relayed.settle()
        assert relayed.to_client.take() == unsupported
        relayed.close()

    run_virtually(work())


def test_a_mistake_of_ours_costs_one_connection_and_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        troubles: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
        for which in ("produce", "fetch", "connected"):
            relayed = Relayed()

            def fail(*_: object, **__: object) -> None:
                raise ZeroDivisionError

            if which == "connected":
                monkeypatch.setattr(relayed.client.identity.__class__, "connected", fail)
                await relayed.connect()
            else:
                relayed.limit("producer_byte_rate", 1.0, client_id="c")
                relayed.limit("consumer_byte_rate", 1.0, client_id="c")
                await relayed.connect()
                monkeypatch.setattr(relayed.client.enforcement, which, fail)
                relayed.client_sends(produce_request(1, bytes(99)) if which == "produce" else fetch_request(1, 1))
                if which == "fetch":
                    relayed.broker_sends(answer(1, bytes(20)))
            await relayed.settle()
            assert relayed.has_ended
            assert isinstance(relayed.failure, ZeroDivisionError), which
        assert troubles == []

    run_virtually(work())


def test_who_a_client_is_is_known_where_nobody_logs_in() -> None:
    async def work() -> None:
        relayed = await connected()
        assert relayed.client.identity.principal == KafkaPrincipal("User", "ANONYMOUS")
        relayed.close()
        assert isinstance(relayed.to_client, End)

    run_virtually(work())


def test_at_the_end_who_still_takes_answers_is_not_cut_off() -> None:
    async def work() -> None:
        relayed = await connected()
        relayed.client_sends(heartbeat(1))
        relayed.client.end()
        relayed.to_client.unsent_bytes = 100
        relayed.broker_sends(alive(1))
        assert not await relayed.ends()
        relayed.to_client.unsent_bytes = 0
        assert await relayed.ends()

    run_virtually(work())


def test_a_client_of_kafka_0_9_that_sends_a_bare_gssapi_token_is_told_apart_in_the_log() -> None:
    async def work() -> None:
        relayed = await connected()
        relayed.client_sends(struct.pack(">i", 20) + b"\x60\x82\x02\x06" + bytes(16))
        await relayed.settle()
        assert relayed.has_ended
        assert "GSSAPI token without a handshake" in str(relayed.failure)

    run_virtually(work())
