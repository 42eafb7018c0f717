"""What every storage of datasets has to do, shown of the one there is."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest

from kquota.pipeline.dataset.errors import UnsupportedStorageError
from kquota.pipeline.dataset.storage import FileInfo, LocalStorage, Storage, open_storage

WRITERS = 8


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path / "data")


def test_nothing_is_listed_before_anything_is_written(storage: Storage) -> None:
    assert storage.list() == []
    assert storage.list("usage/") == []


def test_files_are_listed_by_path_with_their_sizes(storage: Storage) -> None:
    storage.put("b/two", b"22")
    storage.put("a", b"1")
    storage.put("b/c/three", b"333")
    assert storage.list() == [FileInfo("a", 1), FileInfo("b/c/three", 3), FileInfo("b/two", 2)]
    assert storage.list("b/") == [FileInfo("b/c/three", 3), FileInfo("b/two", 2)]


def test_what_is_put_is_read_whole_and_in_ranges(storage: Storage) -> None:
    storage.put("a/b", b"0123456789")
    assert storage.read("a/b") == b"0123456789"
    with storage.open_input("a/b") as file:
        file.seek(4)
        assert file.read(3) == b"456"


def test_a_buffer_of_arrow_can_be_put(storage: Storage) -> None:
    storage.put("a", pa.py_buffer(b"abc"))
    assert storage.read("a") == b"abc"


def test_put_replaces_what_is_there(storage: Storage) -> None:
    storage.put("a", b"old and longer")
    storage.put("a", b"new")
    assert storage.read("a") == b"new"
    assert storage.list() == [FileInfo("a", 3)]


def test_put_new_refuses_a_path_that_is_taken(storage: Storage) -> None:
    storage.put_new("a", b"first")
    with pytest.raises(FileExistsError):
        storage.put_new("a", b"second")
    assert storage.read("a") == b"first"
    assert storage.list() == [FileInfo("a", 5)]


def test_of_writers_of_one_new_path_one_succeeds(storage: Storage) -> None:
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


def test_what_is_not_there_cannot_be_read(storage: Storage) -> None:
    with pytest.raises(FileNotFoundError):
        storage.read("a")
    with pytest.raises(FileNotFoundError):
        storage.open_input("a/b")


def test_absent_files_can_be_deleted(storage: Storage) -> None:
    storage.put("a/b", b"1")
    storage.put("a/c", b"1")
    storage.delete(["a/b", "a/b", "x/y"])
    assert storage.list() == [FileInfo("a/c", 1)]


def test_workers_get_the_storage_of_the_driver(storage: Storage) -> None:
    storage.put("a", b"1")
    assert pickle.loads(pickle.dumps(storage)).read("a") == b"1"


def test_folders_that_become_empty_go(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path / "data"))
    storage.put("usage/date=2026-01-05/a", b"1")
    storage.put("b", b"1")
    storage.delete(["usage/date=2026-01-05/a"])
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["b"]
    storage.delete(["b"])
    assert list(tmp_path.iterdir()) == []


def test_files_are_written_while_others_delete_the_last_of_their_folder(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path / "data"))

    def work(number: int) -> None:
        for _ in range(200):
            storage.put(f"a/b/{number}", b"1")
            storage.delete([f"a/b/{number}"])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_left_is_not_listed_and_goes_in_time(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.put("a/b", b"1")
    partial = tmp_path / "a" / ".partial-1"
    partial.write_bytes(b"half")
    assert storage.list() == [FileInfo("a/b", 1)]
    storage.remove_partial()
    assert partial.exists(), "its writer may be at work"
    os.utime(partial, (0, 0))
    storage.remove_partial()
    assert not partial.exists()


def test_a_file_is_no_storage(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    with pytest.raises(NotADirectoryError):
        open_storage(tmp_path / "data").list()


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    storage = LocalStorage(str(tmp_path / "data"))
    with pytest.raises(UnsupportedStorageError, match="no hard links"):
        storage.put_new("a", b"1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["s3a://bucket/key", "gs://bucket/key", "hdfs:/key", "file://host/key"])
def test_other_storages_are_refused(url: str) -> None:
    with pytest.raises(UnsupportedStorageError) as caught:
        open_storage(url)
    assert caught.value.url == url


def test_a_path_and_its_url_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_storage("data").url == open_storage(f"file://{tmp_path}/data").url == f"{tmp_path}/data"
    assert open_storage("data").spark_url("usage") == f"file://{tmp_path}/data/usage"
