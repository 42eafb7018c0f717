"""Frames out of a stream that arrives in any pieces."""

import struct
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.errors import FrameSizeError
from kquota.wire.frames import FrameSplitter, framed


def frames_in(splitter: FrameSplitter, data: bytes) -> Iterator[bytes]:
    """The frames that are complete with `data`."""
    splitter.feed(data)
    while (frame := splitter.next_frame()) is not None:
        yield frame


@given(st.lists(st.binary(max_size=20), max_size=8), st.lists(st.integers(0, 100), max_size=10))
def test_frames_come_out_whole_and_in_order(payloads: list[bytes], cuts: list[int]) -> None:
    """However the bytes arrive."""
    stream = b"".join(map(framed, payloads))
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    splitter = FrameSplitter()
    frames = [frame for start, end in pairwise(places) for frame in frames_in(splitter, stream[start:end])]
    assert frames == payloads
    assert splitter.buffered_bytes == 0


def test_a_frame_has_the_size_of_its_parts() -> None:
    assert framed(b"ab", b"", b"c") == b"\0\0\0\3abc"
    assert framed() == bytes(4)


def test_what_is_announced_costs_nothing() -> None:
    """Only bytes that arrived are kept."""
    splitter = FrameSplitter()
    assert list(frames_in(splitter, struct.pack(">i", 100 * 1024 * 1024) + b"abc")) == []
    assert (splitter.frame_bytes, splitter.buffered_bytes) == (100 * 1024 * 1024, 7)


@pytest.mark.parametrize(
    ("head", "guess"),
    [
        (b"\xff\xff\xff\xff", "-1 bytes"),
        (struct.pack(">i", 1001), "1001 bytes is announced, 1000 are the most"),
        (b"\x16\x03\x01\x02\x00\x01", "the beginning of TLS"),
        (b"\x15\x03\x03\x00\x02\x02", "TLS alert"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
    ],
)
def test_an_impossible_size(head: bytes, guess: str) -> None:
    """Frames before it are handed out; the error says what the peer may be speaking."""
    splitter = FrameSplitter(max_frame_bytes=1000)
    splitter.feed(framed(b"good") + head)
    assert splitter.next_frame() == b"good"
    with pytest.raises(FrameSizeError, match=guess):
        splitter.next_frame()
