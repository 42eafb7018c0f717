"""HDFS holds datasets as a folder does: the same suite, commits, and what goes wrong."""

from __future__ import annotations

import pickle
from itertools import count

import pytest

from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.errors import NotADatasetError
from kquota.pipeline.storage import hdfs as hdfs_storage
from kquota.pipeline.storage.errors import (
    MissingPackageError,
    StorageFailedError,
    UnsupportedStorageError,
)
from kquota.pipeline.storage.opening import open_storage
from kquota.pipeline.storage.port import Storage
from tests.kit.datasets import analysed, left_over
from tests.kit.hdfs import hdfs
from tests.kit.storage_contract import StorageContract

__all__ = ["hdfs"]

_NUMBERS = count()


@pytest.fixture
def url(hdfs: str) -> str:
    """A folder that nobody else uses."""
    return f"{hdfs}/{next(_NUMBERS)}/data"


class TestHdfsStorage(StorageContract):
    """What every storage does."""

    @pytest.fixture
    def storage(self, url: str) -> Storage:
        return open_storage(url)


def test_a_dataset(url: str) -> None:
    analysed(url, 1)
    dataset = analysed(url, 2)
    assert Dataset.open(url).version == dataset.version == 2
    assert left_over(Dataset.open(url)) == []


def test_a_storage_goes_to_workers(url: str) -> None:
    storage = open_storage(url)
    storage.put("a", b"1")
    assert pickle.loads(pickle.dumps(storage)).read("a") == b"1"


def test_no_dataset_is_there(url: str) -> None:
    with pytest.raises(NotADatasetError, match=url):
        Dataset.open(url)


def test_a_name_node_that_does_not_answer() -> None:
    with pytest.raises(StorageFailedError, match=r"hdfs://127\.0\.0\.1:1: the name node does not answer"):
        Dataset.open("hdfs://127.0.0.1:1/data")


def test_a_url_without_a_name_node() -> None:
    with pytest.raises(UnsupportedStorageError, match="hdfs:///data"):
        open_storage("hdfs:///data")


def test_the_package_is_not_installed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs_storage, "find_spec", lambda _: None)
    with pytest.raises(MissingPackageError, match=r"pip install 'kquota\[hdfs\]'"):
        open_storage(url)
