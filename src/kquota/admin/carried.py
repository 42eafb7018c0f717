"""Requests of ours in the shape that kafka-python's connections carry, and what comes back."""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import Struct

from kquota.errors import MalformedMessageError
from kquota.wire.apis import Api, frame_request, read_response

__all__ = ["Answer", "Carried"]


class _Header(NamedTuple):
    """What kafka-python wants to know of a request that it waits for the answer to."""

    correlation_id: int
    api_key: int
    api_version: int
    request: Carried

    def get_response_class(self) -> Carried:
        return self.request


class Carried:
    """A request of ours in the shape of kafka-python's, and its answer's class at once."""

    def __init__(self, api: Api, version: int, body: Struct) -> None:
        """Take a request.

        :raises IllegalArgumentError: no request can hold this body.
        """
        self.api = api
        self.API_KEY = api.key
        self.API_VERSION = version
        # Now, and not on kafka-python's thread: what no request can hold is refused before anything is sent.
        self._payload = api.request_codec(version).write(body)
        self.header: _Header | None = None
        self.is_abandoned = False
        """Nobody waits for it any more: if it was not sent yet, it is not to be sent."""
        self._client_id: str | None = None

    def with_header(self, correlation_id: int = 0, client_id: str | None = None) -> None:
        """It is about to be sent."""
        self.header = _Header(correlation_id, self.API_KEY, self.API_VERSION, self)
        self._client_id = client_id

    def encode(self, **_options: bool) -> bytes:
        """The frame, without its length."""
        assert self.header is not None
        return frame_request(self.api, self.API_VERSION, self.header.correlation_id, self._client_id, self._payload)

    def expect_response(self) -> bool:
        """Every request of ours is answered."""
        return True

    def parse_header(self, buffer: Any) -> _Header:
        """kafka-python checks the correlation id; the rest is read with the body."""
        frame = buffer.read()
        buffer.seek(0)
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        return _Header(correlation_id, self.API_KEY, self.API_VERSION, self)

    @property
    def was_sent(self) -> bool:
        """Or at least given away to be sent."""
        return self.header is not None

    def decode(self, buffer: Any) -> Answer:
        """What cannot be read is an answer, too: whoever waits for it is to be told."""
        try:
            _, body = read_response(self.api, self.API_VERSION, bytes(buffer.read()))
        except MalformedMessageError as error:
            return Answer(error)
        return Answer(body, body.throttle_time_ms if self.api.client_throttles(self.API_VERSION) else 0)

    def __str__(self) -> str:
        return f"{self.api.name} v{self.API_VERSION}"


class Answer(NamedTuple):
    """What was read, and for how long kafka-python is to send nothing more on this connection."""

    body: Any
    """A message, or a MalformedMessageError."""
    throttle_time_ms: int = 0
