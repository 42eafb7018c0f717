"""The requests that the gateway reads whole: logins, ApiVersions, changes of topics, and quotas that it keeps itself.

Each is answered with nothing else under way on its connection, so what is here reads from top to bottom: look at the
request, ask the broker, look at its answer, answer the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kquota.errors import ProtocolError
from kquota.gateway.identity.sasl import Progress
from kquota.gateway.identity.sasl_observer import SaslObserver
from kquota.gateway.mutations.charging import mutate
from kquota.gateway.relay.actions import Action, Kind
from kquota.gateway.relay.api_versions import clamp_api_versions
from kquota.wire.apis import read_header
from kquota.wire.frames import framed

if TYPE_CHECKING:
    from kquota.gateway.relay.broker_connection import BrokerConnection
    from kquota.gateway.relay.client_connection import ClientConnection
    from kquota.gateway.relay.relay import Relay

__all__ = ["answer_whole"]

MOST_ELEMENTS: Final = 200_000
"""Of all lists in a request about topics: a topic may be given the replicas of each of its partitions."""
PARTS_AT_ONCE: Final = 1_000
"""Of an answer about quotas, which are some 50 bytes each."""


async def answer_whole(
    relay: Relay, client: ClientConnection, broker: BrokerConnection, action: Action | None, frame: bytes
) -> None:
    """Answer a request that was read whole.

    :param action: None for a bare token of a login (SaslHandshake version 0).
    :param frame: the request without its size.
    :raises ProtocolError: the connection is to be closed without an answer.
    :raises ConnectionResetError: the broker closed it.
    """
    sasl = client.identity.sasl
    if action is None:
        assert sasl is not None
        sasl.raw_request(frame)
        try:
            token = await broker.ask(framed(frame), is_token=True)
        except ConnectionResetError:  # which is all that a broker says about a failure
            relay.note_login(client.peer, sasl.mechanism, Progress.FAILED)
            raise
        relay.note_login(client.peer, sasl.mechanism, sasl.raw_response(token))
        client.write(framed(token))
        return
    relay.stats.requests[action.api_key] += 1
    match action.kind:
        case Kind.API_VERSIONS:
            answer = await broker.ask(framed(frame))
            version = int.from_bytes(frame[2:4], "big")  # maybe a newer one than that of the action
            client.write(clamp_api_versions(framed(answer), version, relay.own_versions))
        case Kind.SASL_HANDSHAKE:
            sasl = _login(sasl)
            sasl.handshake_request(frame, action.version)
            answer = await broker.ask(framed(frame))
            sasl.handshake_response(answer, action.version)
            client.write(framed(answer))
        case Kind.SASL_AUTHENTICATE:
            sasl = _login(sasl)
            sasl.authenticate_request(frame, action.version)
            answer = await broker.ask(framed(frame))
            progress = sasl.authenticate_response(answer, action.version)
            relay.note_login(client.peer, sasl.mechanism, progress)
            client.write(framed(answer))
        case Kind.MUTATION:
            await _mutate(relay, client, broker, action, frame)
        case Kind.QUOTAS:
            assert relay.own_quotas is not None
            principal = client.identity.principal
            assert principal is not None
            parts = await relay.own_quotas.answer(frame, action, principal, broker, client.now_ms / 1000)
            for start in range(0, len(parts), PARTS_AT_ONCE):
                client.write(b"".join(parts[start : start + PARTS_AT_ONCE]))
        case _:
            raise ProtocolError(f"{action.name} is not read whole")


async def _mutate(
    relay: Relay, client: ClientConnection, broker: BrokerConnection, action: Action, frame: bytes
) -> None:
    """Changes of topics are charged at the controller, wherever they were sent: one quota for the whole cluster."""
    principal = client.identity.principal
    assert principal is not None
    header, _ = read_header(frame)
    charged = relay.client(principal, header.client_id)
    if charged is None:
        client.write(framed(await broker.ask(framed(frame))))
        return
    mutated = await mutate(
        frame,
        action,
        forward=broker.ask,
        enforcement=relay.quotas.controller,
        client=charged,
        counts=relay.partition_counts,
        now_ms=lambda: client.now_ms,
        max_elements=MOST_ELEMENTS,
    )
    if mutated.throttle_ms > 0:
        client.mute(mutated.throttle_ms, client.now_ms)
    relay.stats.topics_refused += mutated.refused
    client.write(mutated.answer)


def _login(sasl: SaslObserver | None) -> SaslObserver:
    if sasl is None:
        raise ProtocolError("a login where the cluster's security.protocol has none")
    return sasl
