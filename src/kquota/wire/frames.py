"""Bytes from a stream, cut into frames: four bytes of size, and that many bytes.

Sans-I/O: bytes go in as they arrive, whole frames come out, one each time one is asked for. What a peer announces costs
nothing until it arrives.
"""

from __future__ import annotations

from typing import Final

from kquota.errors import FrameSizeError

__all__ = ["MAX_FRAME_BYTES", "FrameSplitter", "framed"]

MAX_FRAME_BYTES: Final = 100 * 1024 * 1024
"""A broker's ``socket.request.max.bytes``, where nothing else is set."""

_SIZE_BYTES: Final = 4


def framed(*parts: bytes) -> bytes:
    """A frame with its size, of what goes into it."""
    return b"".join((sum(map(len, parts)).to_bytes(_SIZE_BYTES, "big"), *parts))


class FrameSplitter:
    """Collects the bytes of one direction of one connection."""

    __slots__ = ("_buffer", "_max_frame_bytes")

    def __init__(self, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._max_frame_bytes = max_frame_bytes

    def feed(self, data: bytes | bytearray) -> None:
        """Take bytes as they arrived."""
        self._buffer += data

    @property
    def frame_bytes(self) -> int | None:
        """The size that the next frame announces, its own four bytes not counted; None before these are there.

        :raises FrameSizeError: the size is negative or beyond the limit; no frame after it can be found, and the
            connection must be closed.
        """
        buffer = self._buffer
        if len(buffer) < _SIZE_BYTES:
            return None
        size = int.from_bytes(buffer[:_SIZE_BYTES], "big", signed=True)
        if not 0 <= size <= self._max_frame_bytes:
            raise FrameSizeError(size, self._max_frame_bytes, bytes(buffer[:16]))
        return size

    def next_frame(self) -> bytes | None:
        """The next frame without its size, once; None while it is not complete.

        :raises FrameSizeError: as :attr:`frame_bytes`.
        """
        size = self.frame_bytes
        if size is None or len(self._buffer) < _SIZE_BYTES + size:
            return None
        end = _SIZE_BYTES + size
        with memoryview(self._buffer) as view:
            frame = bytes(view[_SIZE_BYTES:end])
        del self._buffer[:end]
        return frame

    @property
    def buffered_bytes(self) -> int:
        """Bytes that no frame was made of yet."""
        return len(self._buffer)
