"""The requests that the gateway reads whole: logins, ApiVersions, changes of topics, and quotas that it keeps itself.

Each is answered with nothing else under way on its connection, so what is here reads from top to bottom: look at the
request, ask the broker, look at its answer, answer the client.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from kquota.errors import ProtocolError
from kquota.gateway.actions import Action, Kind
from kquota.gateway.api_versions import clamp_api_versions
from kquota.gateway.mutations import mutate

if TYPE_CHECKING:
    from kquota.gateway.broker_connection import BrokerConnection
    from kquota.gateway.client_connection import ClientConnection
    from kquota.gateway.relay import Relay

__all__ = ["WholeRequests"]

_SIZE: Final = Struct(">i")


class WholeRequests:
    """Answers them, for all connections."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    async def answer(
        self, client: ClientConnection, broker: BrokerConnection, action: Action | None, frame: bytes
    ) -> None:
        """Answer one.

        :param action: None for a bare token of a login (SaslHandshake version 0).
        :param frame: the request without its size.
        :raises ProtocolError: the connection is to be closed without an answer.
        :raises ConnectionResetError: the broker closed it.
        """
        if action is None:
            client.identity.raw_request(frame)
            token = await broker.ask(_framed(frame))
            client.identity.raw_response(token)
            client.send(_framed(token))
            return
        match action.kind:
            case Kind.API_VERSIONS:
                answer = await broker.ask(_framed(frame))
                version = int.from_bytes(frame[2:4], "big")
                client.send(clamp_api_versions(_framed(answer), version, self._relay.own_versions))
            case Kind.SASL_HANDSHAKE:
                client.identity.handshake_request(frame, action.version)
                answer = await broker.ask(_framed(frame))
                client.identity.handshake_response(answer, action.version)
                client.send(_framed(answer))
            case Kind.SASL_AUTHENTICATE:
                client.identity.authenticate_request(frame, action.version)
                answer = await broker.ask(_framed(frame))
                client.identity.authenticate_response(answer, action.version)
                client.send(_framed(answer))
            case Kind.MUTATION:
                await self._mutate(client, broker, action, frame)
            case Kind.QUOTAS:
                assert self._relay.own_quotas is not None
                client.send(await self._relay.own_quotas.answer(client, broker, action, frame))
            case _:
                raise ProtocolError(f"{action.name} is not read whole")

    async def _mutate(self, client: ClientConnection, broker: BrokerConnection, action: Action, frame: bytes) -> None:
        raise NotImplementedError


def _framed(payload: bytes) -> bytes:
    return _SIZE.pack(len(payload)) + payload
