"""Tasks are balanced; importers of zip files are forgotten, and imports from zip files still work."""

import importlib
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.pipeline.spark.workers import balanced_tasks, drop_zip_importers


@given(
    sizes=st.lists(st.integers(0, 1000), max_size=50),
    parallelism=st.integers(1, 8),
    min_bytes=st.integers(1, 100),
    max_bytes=st.integers(100, 2000),
)
def test_tasks_have_every_input_once_and_about_the_same_size(
    sizes: list[int], parallelism: int, min_bytes: int, max_bytes: int
) -> None:
    """No task is larger than the most, but by one input at each of its ends."""
    tasks = balanced_tasks(sizes, parallelism, min_bytes=min_bytes, max_bytes=max_bytes)
    assert sorted(index for task in tasks for index in task) == list(range(len(sizes)))
    assert all(task == list(range(task[0], task[-1] + 1)) for task in tasks)
    in_task = [sum(sizes[index] for index in task) for task in tasks]
    assert in_task == sorted(in_task, reverse=True)
    assert all(size <= max_bytes + max(sizes) for size in in_task)


def test_inputs_without_content_are_in_a_task() -> None:
    assert balanced_tasks([0, 0], 2, max_bytes=100) == [[0, 1]]
    assert balanced_tasks([], 2, max_bytes=100) == []


def test_few_large_inputs_are_read_by_as_many_cores() -> None:
    assert balanced_tasks([10, 10, 30, 10], 2, max_bytes=100) == [[2], [0], [1], [3]]
    assert balanced_tasks([10, 10, 30, 10], 2, min_bytes=30, max_bytes=100) == [[2, 3], [0, 1]]


def test_imports_from_a_zip_work_after_its_importers_were_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker imports later from pyspark.zip must still be found."""
    archive = tmp_path / "parts.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("kquota_zipped_first.py", "value = 1")
        file.writestr("kquota_zipped_later.py", "value = 2")
    monkeypatch.syspath_prepend(str(archive))
    assert importlib.import_module("kquota_zipped_first").value == 1
    assert any(isinstance(one, zipimporter) for one in sys.path_importer_cache.values())
    drop_zip_importers()
    assert not any(isinstance(one, zipimporter) for one in sys.path_importer_cache.values())
    assert importlib.import_module("kquota_zipped_later").value == 2
