"""The same log under two names counts once, and what is merely alike is read."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.errors import InputError
from kquota.pipeline.ingest.request_log import duplicate_logs as duplicate_logs_module
from kquota.pipeline.ingest.request_log.duplicate_logs import Comparison, Digests, digests_of, find_duplicate_logs
from kquota.pipeline.ingest.request_log.log_files import find_log_files, read_chunks

LINES = [b"[2026-01-02 03:04:%02d,000] DEBUG Completed request:{%d}\n" % (second, second) for second in range(60)]


def compared(files: Sequence[Comparison]) -> list[Digests]:
    return [digests_of(file) for file in files]


def repeated(*patterns: str) -> dict[str, str]:
    found = find_duplicate_logs(find_log_files(patterns), compared)
    return {Path(one.file).name: Path(one.of).name for one in found.values()}


def test_copies_plain_and_compressed(tmp_path: Path) -> None:
    text = b"".join(LINES)
    (tmp_path / "1.gz").write_bytes(gzip.compress(text))
    (tmp_path / "2.log").write_bytes(text)
    (tmp_path / "3.log").write_bytes(text)
    (tmp_path / "4.gz").write_bytes(gzip.compress(text[:500]) + b"\0\0" + gzip.compress(text[500:]))
    assert repeated(f"{tmp_path}/*") == {"1.gz": "2.log", "3.log": "2.log", "4.gz": "2.log"}


def test_a_copy_of_a_log_that_went_on(tmp_path: Path) -> None:
    """Also one that was made in the middle of a line, and one whose end was lost."""
    text = b"".join(LINES)
    (tmp_path / "log").write_bytes(text)
    (tmp_path / "log.first").write_bytes(text[:700])
    (tmp_path / "log.gz").write_bytes(gzip.compress(text)[:-20])
    assert repeated(f"{tmp_path}/*") == {"log.first": "log", "log.gz": "log"}


def test_what_is_merely_alike_is_read(tmp_path: Path) -> None:
    text = b"".join(LINES)
    (tmp_path / "all").write_bytes(text)
    (tmp_path / "other-middle").write_bytes(text[:1000] + b"x" + text[1001:])
    (tmp_path / "other-end").write_bytes(text[:-2] + b"x\n")
    (tmp_path / "some").write_bytes(b"".join(LINES[::2]))
    (tmp_path / "later").write_bytes(b"".join(LINES[30:]))
    (tmp_path / "empty-1").touch()
    (tmp_path / "empty-2").touch()
    # Nothing can be read of either.
    (tmp_path / "broken-1.gz").write_bytes(b"\x1f\x8b\x08\x00\n1234567890")
    (tmp_path / "broken-2.gz").write_bytes(b"\x1f\x8b\x08\x00\n0987654321")
    assert repeated(f"{tmp_path}/*") == {}


def test_nothing_is_compared_without_need(tmp_path: Path) -> None:
    for place in range(3):
        (tmp_path / f"{place}.log").write_bytes(b"".join(LINES[place:]))

    def never(files: Sequence[Comparison]) -> list[Digests]:
        raise AssertionError(files)

    assert find_duplicate_logs(find_log_files([f"{tmp_path}/*"]), never) == {}


def test_one_log_cannot_be_that_of_two_brokers(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"".join(LINES))
    with pytest.raises(InputError, match=r"b is given as a log of broker 2, and all of it is in .*a, which is"):
        repeated(f"1={tmp_path}/a", f"2={tmp_path}/b")


@given(
    texts=st.lists(st.lists(st.sampled_from([b"a\n", b"b\n", b"c"]), min_size=1, max_size=5).map(b"".join), max_size=6),
    packed=st.lists(st.booleans(), min_size=6, max_size=6),
    chunk_bytes=st.integers(1, 4),
)
def test_what_is_read_holds_each_log_that_is_not(
    tmp_path_factory: pytest.TempPathFactory, texts: list[bytes], packed: list[bool], chunk_bytes: int
) -> None:
    """Against comparing the texts: left out are exactly those that another one begins with."""
    folder = tmp_path_factory.mktemp("logs")
    for place, text in enumerate(texts):
        (folder / f"{place}").write_bytes(gzip.compress(text) if packed[place] else text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicate_logs_module, "read_chunks", partial(read_chunks, chunk_bytes=chunk_bytes))
        files = find_log_files([f"{folder}/*"] if texts else [])
        found = find_duplicate_logs(files, compared)
    left = [text for place, text in enumerate(texts) if place not in found]
    assert len(set(left)) == len(left)
    for place, text in enumerate(texts):
        same_first = [one for one in left if one.partition(b"\n")[0] == text.partition(b"\n")[0]]
        is_in_another = any(one.startswith(text) for one in same_first if one != text)
        assert not is_in_another or place in found
        if place in found:
            of = texts[int(Path(found[place].of).name)]
            assert of.startswith(text)
            assert of in left
