"""Bytes from a stream, cut into frames: four bytes of size, and that many bytes.

Sans-I/O: bytes go in as they arrive, whole frames come out. What a peer announces costs nothing until it arrives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kquota.errors import FrameSizeError

__all__ = ["MAX_FRAME_BYTES", "FrameSplitter"]

MAX_FRAME_BYTES: Final = 100 * 1024 * 1024
"""``socket.request.max.bytes``."""

_SIZE_BYTES: Final = 4


class FrameSplitter:
    """Collects the bytes of one direction of one connection."""

    __slots__ = ("_buffer", "_max_frame_bytes")

    def __init__(self, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._max_frame_bytes = max_frame_bytes

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that are complete with `data`, without their sizes.

        All of them have to be taken before more is fed.

        :raises FrameSizeError: a frame announces a size that is negative or beyond the limit; no frame after it can be
            found, and the connection must be closed. Frames before it are handed out first.
        """
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= _SIZE_BYTES:
                size = int.from_bytes(buffer[at : at + _SIZE_BYTES], "big", signed=True)
                if not 0 <= size <= self._max_frame_bytes:
                    raise FrameSizeError(size, self._max_frame_bytes, bytes(buffer[at : at + 16]))
                end = at + _SIZE_BYTES + size
                if end > len(buffer):
                    break
                frame = bytes(buffer[at + _SIZE_BYTES : end])
                at = end
                yield frame
        finally:
            del buffer[:at]

    @property
    def buffered_bytes(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._buffer)
