"""What every storage of datasets does: a suite to inherit, with a fixture `storage`; and a storage in memory."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier, Lock
from typing import Any

import pyarrow as pa
import pytest

from kquota.pipeline.storage.port import PARTIAL_S, FileInfo, Storage
from kquota.pipeline.storage.ranges import read_ahead

__all__ = ["MemoryStorage", "StorageContract"]

WRITERS = 8


class MemoryStorage:
    """Files in memory, as in an object store: there are no folders and no renames, and creating one is atomic."""

    def __init__(self, url: str = "memory://data") -> None:
        self.url = self.identity = url
        self.files: dict[str, bytes] = {}
        self._lock = Lock()

    def list(self, prefix: str = "") -> list[FileInfo]:
        return sorted(
            FileInfo(path, len(content)) for path, content in [*self.files.items()] if path.startswith(prefix)
        )

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.read(path))

    def read(self, path: str) -> bytes:
        try:
            return self.files[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def size(self, path: str) -> int:
        return len(self.read(path))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self.read(path)[start : start + length]

    def stream(self, path: str, start: int = 0, end: int | None = None, *, piece_bytes: int) -> Iterator[bytes]:
        end = min(self.size(path), self.size(path) if end is None else end)
        return read_ahead(partial(self.read_range, path), start, end, piece_bytes=piece_bytes, range_bytes=1000)

    def put(self, path: str, content: bytes | pa.Buffer, *, durable: bool = False) -> None:
        self.files[path] = bytes(content)

    def put_new(self, path: str, content: bytes) -> None:
        with self._lock:
            if path in self.files:
                raise FileExistsError(path)
            self.files[path] = content

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.files.pop(path, None)

    def remove_partial(self, older_than_s: float = PARTIAL_S) -> None:
        """There is none."""

    def spark_url(self, path: str) -> str:
        return f"{self.url}/{path}"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=Lock())


class StorageContract:
    """The tests. What they write is seen in `storage` alone."""

    def test_nothing_is_listed_before_anything_is_written(self, storage: Storage) -> None:
        assert storage.list() == []
        assert storage.list("usage/") == []

    def test_files_are_listed_by_path_with_their_sizes(self, storage: Storage) -> None:
        storage.put("b/two", b"22")
        storage.put("a", b"1")
        storage.put("b/c/three", b"333")
        assert storage.list() == [FileInfo("a", 1), FileInfo("b/c/three", 3), FileInfo("b/two", 2)]

    def test_a_prefix_is_that_of_a_folder(self, storage: Storage) -> None:
        for path in ("b/1", "b/c/2", "bc/3", "b.json"):
            storage.put(path, b"1")
        assert [file.path for file in storage.list("b/")] == ["b/1", "b/c/2"]

    def test_what_is_put_is_read_whole_and_in_ranges(self, storage: Storage) -> None:
        storage.put("a/b", b"0123456789")
        assert storage.read("a/b") == b"0123456789"
        with storage.open_input("a/b") as file:
            file.seek(4)
            assert file.read(3) == b"456"
            assert file.size() == storage.size("a/b") == 10
        assert storage.read_range("a/b", 2, 8) == b"23456789"

    @pytest.mark.parametrize(("start", "piece_bytes"), [(0, 7), (3, 1024), (99_999, 10), (100_000, 10)])
    def test_a_file_is_streamed_from_a_byte_to_its_end(self, storage: Storage, start: int, piece_bytes: int) -> None:
        content = bytes(range(250)) * 400
        storage.put("log", content)
        pieces = [*storage.stream("log", start, piece_bytes=piece_bytes)]
        assert b"".join(pieces) == content[start:]
        assert b"".join(storage.stream("log", start, start + 5, piece_bytes=piece_bytes)) == content[start : start + 5]
        assert all(0 < len(piece) <= piece_bytes for piece in pieces)

    @pytest.mark.parametrize("durable", [False, True])
    def test_a_buffer_of_arrow_can_be_put(self, storage: Storage, durable: bool) -> None:
        storage.put("a/b", pa.py_buffer(b"abc"), durable=durable)
        assert storage.read("a/b") == b"abc"

    def test_put_replaces_what_is_there(self, storage: Storage) -> None:
        storage.put("a", b"old and longer")
        storage.put("a", b"new")
        assert storage.read("a") == b"new"
        assert storage.list() == [FileInfo("a", 3)]

    def test_put_new_refuses_a_path_that_is_taken(self, storage: Storage) -> None:
        storage.put("a", b"put")
        storage.put_new("b", b"put new")
        for path, content in (("a", b"put"), ("b", b"put new")):
            with pytest.raises(FileExistsError):
                storage.put_new(path, b"second")
            assert storage.read(path) == content
            storage.delete([path])
            storage.put_new(path, b"it is free again")
        assert [file.path for file in storage.list()] == ["a", "b"]

    def test_of_writers_of_one_new_path_one_succeeds(self, storage: Storage) -> None:
        ready = Barrier(WRITERS)

        def write(number: int, path: str) -> bool:
            ready.wait()
            try:
                storage.put_new(path, f"writer {number}".encode() * 1000)
            except FileExistsError:
                return False
            return True

        with ThreadPoolExecutor(WRITERS) as pool:
            for attempt in range(20):
                path = f"_runs/{attempt}.json"
                won = list(pool.map(write, range(WRITERS), [path] * WRITERS))
                assert won.count(True) == 1
                assert storage.read(path) == f"writer {won.index(True)}".encode() * 1000
        assert len(storage.list()) == 20

    def test_what_is_not_there_cannot_be_read(self, storage: Storage) -> None:
        for path in ("a", "a/b"):
            with pytest.raises(FileNotFoundError):
                storage.read(path)
            with pytest.raises(FileNotFoundError):
                storage.open_input(path)
            with pytest.raises(FileNotFoundError):
                storage.size(path)
            with pytest.raises(FileNotFoundError):
                storage.read_range(path, 0, 1)
            with pytest.raises(FileNotFoundError):
                next(storage.stream(path, piece_bytes=1))

    def test_absent_files_can_be_deleted(self, storage: Storage) -> None:
        storage.put("a/b", b"1")
        storage.put("a/c", b"1")
        storage.delete(iter(["a/b", "a/b", "x/y"]))
        assert storage.list() == [FileInfo("a/c", 1)]

    def test_files_are_written_while_others_delete_the_last_of_their_folder(self, storage: Storage) -> None:
        def work(number: int) -> None:
            for _ in range(100):
                storage.put(f"a/b/{number}", b"1")
                assert storage.read(f"a/b/{number}") == b"1"
                storage.delete([f"a/b/{number}"])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert storage.list() == []

    def test_workers_get_the_storage_of_the_driver(self, storage: Storage) -> None:
        storage.put("a", b"1")
        sent: Storage = pickle.loads(pickle.dumps(storage))
        assert (sent.url, sent.identity, sent.read("a")) == (storage.url, storage.identity, b"1")
