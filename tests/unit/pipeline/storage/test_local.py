"""The storages of datasets: each does what the suite says, and a folder some things more."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.errors import NotWritableError
from kquota.pipeline.dataset.manifest import LIVE_EVERY, manifest_path
from kquota.pipeline.dataset.steps import INGEST_STEP, SWEEP_STEP
from kquota.pipeline.storage.errors import UnsupportedStorageError
from kquota.pipeline.storage.local import LocalStorage
from kquota.pipeline.storage.opening import open_storage
from kquota.pipeline.storage.port import FileInfo, Storage
from tests.kit.datasets import add_rows, analysed, left_over
from tests.kit.storage_contract import MemoryStorage, StorageContract


@pytest.fixture
def without_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system has no hard links, as FAT and some network mounts."""

    def refuse(path: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", str(target))

    monkeypatch.setattr(Path, "hardlink_to", refuse)


class TestLocalStorage(StorageContract):
    """A folder."""

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return open_storage(tmp_path / "new" / "data")


@pytest.mark.usefixtures("without_links")
class TestLocalStorageWithoutHardLinks(StorageContract):
    """A folder of a file system that has none."""

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return open_storage(tmp_path / "data")


class TestMemoryStorage(StorageContract):
    """What stands for an object store."""

    @pytest.fixture
    def storage(self) -> Storage:
        return MemoryStorage()


def test_a_dataset_needs_no_more_than_an_object_store_has() -> None:
    dataset = Dataset(MemoryStorage())
    for number in range(2 * LIVE_EVERY):
        with dataset.run(INGEST_STEP if number % 5 == 0 else SWEEP_STEP) as run:
            if number % 5 == 0:
                add_rows(run, "requests", {"broker_id": number})
                run.add("usage")
            else:
                add_rows(run, "curve", {"limit": float(number)}, {"limit": float(number)})
            dataset = run.commit()
    assert Dataset(dataset.storage).refresh() == dataset
    assert dataset.read("requests")["broker_id"].to_pylist() == [30]
    assert dataset.read("curve")["limit"].to_pylist() == [31.0, 31.0]
    assert {file.path for file in dataset.storage.list() if not file.path.startswith("_runs/")} == {
        *dataset.live,
        "summary.json",
    }


def test_folders_that_become_empty_go(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path / "data"))
    storage.put("usage/date=2026-01-05/a", b"1")
    storage.put("b", b"1")
    storage.delete(["usage/date=2026-01-05/a"])
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["b"]
    storage.delete(["b"])
    assert list(tmp_path.iterdir()) == []


def test_folders_that_become_empty_under_others_go_at_last(tmp_path: Path) -> None:
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
    partial = storage._write_partial("a/b", b"half", durable=False)
    assert storage.list() == [FileInfo("a/b", 1)]
    storage.remove_partial()
    assert partial.exists(), "its writer may be at work"
    os.utime(partial, (0, 0))
    storage.remove_partial()
    assert not partial.exists()
    assert storage.read("a/b") == b"1"


@pytest.mark.usefixtures("without_links")
def test_a_new_file_without_hard_links_is_empty_or_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that is killed in between leaves it empty; it goes with what else that writer left."""
    storage = LocalStorage(str(tmp_path))

    def die(partial: Path, target: Path) -> None:
        assert storage.list() == [FileInfo("a", 0)]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", die)
        patch.setattr(Path, "unlink", lambda path, missing_ok=False: None)
        with pytest.raises(KeyboardInterrupt):
            storage.put_new("a", b"content")
    (partial,) = tmp_path.glob(".partial-*")
    with pytest.raises(FileExistsError):
        storage.put_new("a", b"another")
    os.utime(partial, (0, 0))
    storage.remove_partial()
    assert (partial.exists(), storage.list()) == (False, [FileInfo("a", 0)]), "another may just have begun the file"
    storage._write_partial("a", b"content", durable=False)
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    storage.remove_partial()
    assert list(tmp_path.iterdir()) == []
    storage.put_new("a", b"another")
    assert storage.read("a") == b"another"


@pytest.mark.usefixtures("without_links")
def test_datasets_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that is empty is not there yet; if its writer was killed, others say so after a while."""
    dataset = analysed(tmp_path, 1)
    dataset = analysed(tmp_path, 2)
    assert left_over(dataset) == []
    monkeypatch.setattr("kquota.pipeline.dataset.commits._PAUSE_S", 0)
    begun = tmp_path / manifest_path(3)
    begun.touch()
    assert Dataset.open(tmp_path) == dataset
    with dataset.run(SWEEP_STEP) as run, pytest.raises(NotWritableError, match=r"commit 3 .*00000003\.json"):
        run.commit()
    begun.unlink()
    assert analysed(tmp_path, 3).version == 3


def test_what_is_durable_is_synced_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the folders after that, up to one that was there before."""
    synced: list[tuple[str, bool]] = []
    storage = LocalStorage(str(tmp_path / "data"))

    def sync(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        synced.append((name.split("-")[0], (tmp_path / "data" / "a" / "b").exists()))

    monkeypatch.setattr(os, "fsync", sync)
    storage.put("a/b", b"1")
    assert synced == []
    storage.delete(["a/b"])
    storage.put("a/b", b"1", durable=True)
    folders = [("a", True), ("data", True), (tmp_path.name.split("-")[0], True)]
    assert synced == [(".partial", False), *folders]
    storage.delete(["a/b"])
    synced.clear()
    storage.put_new("a/b", b"1")
    assert synced == [(".partial", False), *folders]


def test_what_a_manifest_names_was_durable_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[str] = set()
    before_manifest: set[str] = set()
    put, put_new = LocalStorage.put, LocalStorage.put_new

    def watched_put(storage: LocalStorage, path: str, content: bytes, *, durable: bool = False) -> None:
        put(storage, path, content, durable=durable)
        if durable:
            synced.add(path)

    def watched_put_new(storage: LocalStorage, path: str, content: bytes) -> None:
        before_manifest.update(synced)
        put_new(storage, path, content)

    monkeypatch.setattr(LocalStorage, "put", watched_put)
    monkeypatch.setattr(LocalStorage, "put_new", watched_put_new)
    dataset = analysed(tmp_path)
    assert before_manifest >= dataset.live.keys()
    assert "summary.json" not in synced


def test_a_file_is_no_storage(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    with pytest.raises(NotADirectoryError):
        open_storage(tmp_path / "data").list()


@pytest.mark.parametrize("url", ["http://bucket/key", "s3a:/bucket/key", "hdfs:/key", "file://host/key"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(UnsupportedStorageError) as caught:
        open_storage(url)
    assert caught.value.url == url


def test_a_path_and_its_url_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_storage("data").url == open_storage(f"file://{tmp_path}/data").url == f"{tmp_path}/data"
    assert open_storage("data").spark_url("usage") == f"file://{tmp_path}/data/usage"


def test_links_lead_to_the_same_storage(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "data")
    for _ in ("before anything is there", "afterwards"):
        same = {open_storage(tmp_path / name).identity for name in ("data", "link", "link/../data", "./data/")}
        assert len(same) == 1
        assert open_storage(tmp_path / "other").identity not in same
        open_storage(tmp_path / "data").put("a", b"1")
