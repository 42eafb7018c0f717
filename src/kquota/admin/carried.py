"""Requests of ours in the shape that kafka-python's connections carry, and what comes back."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from msgspec import Struct

from kquota.errors import MalformedMessageError
from kquota.wire.apis import Api, frame_request, read_response

__all__ = ["Answer", "KafkaPythonRequest", "Repeated"]

_CORRELATION_ID_BYTES: Final = 4


class Repeated:
    """The answers to a request that is sent again and again: where all bytes are as before, so is the body.

    It is then not decoded again, and is the same object. Decoding 100,000 entities takes most of a second.
    """

    __slots__ = ("_body", "_bytes", "_version")

    def __init__(self) -> None:
        self._version = -1
        self._bytes = b""
        self._body: Any = None

    def read(self, api: Api, version: int, frame: bytes) -> Any:
        """The body of an answer.

        :param frame: without its size.
        :raises MalformedMessageError: these bytes are no such answer.
        """
        known = frame[_CORRELATION_ID_BYTES:]
        if version != self._version or known != self._bytes:
            _, self._body = read_response(api, version, frame)
            self._version, self._bytes = version, known
        return self._body


class _Header(NamedTuple):
    """What kafka-python wants to know of a request that it waits for the answer to."""

    correlation_id: int
    api_key: int
    api_version: int
    request: KafkaPythonRequest

    def get_response_class(self) -> KafkaPythonRequest:
        return self.request


class KafkaPythonRequest:
    """A request of ours in the shape of kafka-python's, and its answer's class at once."""

    def __init__(self, api: Api, version: int, body: Struct, repeated: Repeated | None = None) -> None:
        """Take a request.

        :param repeated: the answers that it had before.

        :raises IllegalArgumentError: no request can hold this body.
        """
        self.api = api
        self.API_KEY = api.key
        self.API_VERSION = version
        # Now, and not on kafka-python's thread: what no request can hold is refused before anything is sent.
        self._payload = api.request_codec(version).write(body)
        self.header: _Header | None = None
        self._repeated = repeated
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
        """An answer that cannot be read fails the call that waits for it."""
        try:
            frame = bytes(buffer.read())
            if self._repeated is None:
                _, body = read_response(self.api, self.API_VERSION, frame)
            else:
                body = self._repeated.read(self.api, self.API_VERSION, frame)
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
