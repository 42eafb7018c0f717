"""What a dataset is, what stands in its place, and how it is read."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kquota.errors import InputError
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.errors import (
    DamagedFileError,
    DatasetExistsError,
    ForeignFilesError,
    MissingTableError,
    NotADatasetError,
    NotWritableError,
    WrongFormatError,
)
from kquota.pipeline.dataset.manifest import LIVE_EVERY
from kquota.pipeline.dataset.steps import RESOLVE_STEP, UTILISATION_STEP
from kquota.pipeline.dataset.tables import USAGE
from kquota.pipeline.storage.errors import UnsupportedStorageError
from tests.kit.datasets import add_rows, analysed, quotas_of


def test_a_new_dataset_has_nothing_and_is_not_there(tmp_path: Path) -> None:
    dataset = Dataset.create(tmp_path / "data")
    assert (dataset.version, dataset.tables, dataset.files("usage")) == (0, frozenset(), ())
    assert dataset.quotas() is None
    assert list(tmp_path.iterdir()) == []


def test_a_dataset_is_not_overwritten_unasked(tmp_path: Path) -> None:
    analysed(tmp_path)
    with pytest.raises(DatasetExistsError) as caught:
        Dataset.create(tmp_path)
    assert caught.value.url == str(tmp_path)
    assert Dataset.create(tmp_path, overwrite=True).version == 1


@pytest.mark.parametrize("overwrite", [False, True])
def test_files_of_others_are_not_touched(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(ForeignFilesError) as caught:
        Dataset.create(tmp_path, overwrite=overwrite)
    assert caught.value.names == ("thesis.txt",)


def test_files_of_others_in_a_dataset_are_not_touched(tmp_path: Path) -> None:
    dataset = analysed(tmp_path)
    (tmp_path / "thesis.txt").write_text("x")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.jpg").write_text("x")
    with pytest.raises(ForeignFilesError) as caught:
        Dataset.create(tmp_path, overwrite=True)
    assert caught.value.names == ("photos", "thesis.txt")
    with pytest.raises(DatasetExistsError):
        Dataset.create(tmp_path)
    assert Dataset.open(tmp_path) == dataset
    assert {path.name for path in tmp_path.iterdir()} >= {"photos", "thesis.txt"}


def test_what_a_run_without_a_commit_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "_runs").mkdir()
    (tmp_path / "_runs" / "0123456789ab.running").write_text("{}")
    (tmp_path / "usage").mkdir()
    (tmp_path / "usage" / "0123456789ab-0123456789ab.parquet").write_text("x")
    assert Dataset.create(tmp_path).version == 0
    with pytest.raises(NotADatasetError) as caught:
        Dataset.open(tmp_path)
    assert caught.value.found == "an unfinished run"
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(ForeignFilesError) as foreign:
        Dataset.create(tmp_path)
    assert foreign.value.names == ("thesis.txt",)


def test_a_dataset_that_is_not_there(tmp_path: Path) -> None:
    for found in ("nothing", "nothing", "other files"):
        with pytest.raises(NotADatasetError) as caught:
            Dataset.open(tmp_path / "data")
        assert caught.value.found == found
        if (tmp_path / "data").is_dir():
            (tmp_path / "data" / "thesis.txt").write_text("x")
        (tmp_path / "data").mkdir(exist_ok=True)
    for path in ("thesis.txt", "thesis.txt/below"):
        with pytest.raises(NotADatasetError) as caught:
            Dataset.open(tmp_path / "data" / path)
        assert caught.value.found == "a file"
        with pytest.raises(NotWritableError, match="Not a directory"):
            Dataset.create(tmp_path / "data" / path)


def test_a_dataset_of_the_first_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_kquota.json").write_text('{"format": 1}')
    for make in (Dataset.open, Dataset.create):
        with pytest.raises(WrongFormatError, match="analyse the logs again"):
            make(tmp_path)


def test_a_url_of_another_storage_is_refused() -> None:
    with pytest.raises(UnsupportedStorageError):
        Dataset.open("ftp://host/data")


def test_tables_are_read_with_what_their_paths_say(tmp_path: Path) -> None:
    analysed(tmp_path, 7)
    dataset = Dataset.open(tmp_path)
    usage = dataset.read("usage")
    assert usage.schema == USAGE.arrow_schema
    assert [(row["date"], row["requests"]) for row in usage.to_pylist()] == [
        (date(2026, 1, 1), 7),
        (date(2026, 1, 2), 7),
    ]
    assert dataset.read("usage", columns=["date"]).to_pylist() == [
        {"date": date(2026, 1, 1)},
        {"date": date(2026, 1, 2)},
    ]
    assert dataset.read("usage", columns=["requests", "date", "user"]).column_names == ["requests", "date", "user"]


def test_a_table_without_rows_is_there_and_has_no_file(tmp_path: Path) -> None:
    dataset = analysed(tmp_path)
    assert dataset.has("rejected")
    assert dataset.files("rejected") == ()
    assert dataset.read("rejected").num_rows == 0
    assert dataset.read("rejected").column_names == ["cluster", "file", "line", "reason", "sample"]


def test_a_table_that_no_step_wrote_names_the_step(tmp_path: Path) -> None:
    dataset = analysed(tmp_path)
    assert not dataset.has("curve")
    with pytest.raises(MissingTableError) as caught:
        dataset.read("curve")
    assert (caught.value.table, caught.value.written_by) == ("curve", "sweep")


def test_files_are_listed_for_other_readers(tmp_path: Path) -> None:
    dataset = analysed(tmp_path)
    files = dataset.files("usage")
    assert [file.partition for file in files] == [{"date": "2026-01-01"}, {"date": "2026-01-02"}]
    assert [file.rows for file in files] == [1, 1]
    on_disk = sum((tmp_path / file.path).stat().st_size for file in files)
    assert dataset.nbytes("usage") == sum(file.bytes for file in files) == on_disk
    assert dataset.nbytes("usage", "clients") == on_disk + dataset.files("clients")[0].bytes


def test_the_quotas_it_was_judged_by_are_kept(tmp_path: Path) -> None:
    analysed(tmp_path, 7)
    assert Dataset.open(tmp_path).quotas() == quotas_of(7.0)


def test_a_dataset_is_a_value_until_it_is_refreshed(tmp_path: Path) -> None:
    first = analysed(tmp_path, 1)
    second = analysed(tmp_path, 2)
    assert (first.version, first.summary.lines) == (1, 1)
    assert (second.version, second.summary.lines) == (2, 2)
    assert first.refresh() == second == Dataset.open(tmp_path)
    assert second.refresh() is second


@pytest.mark.parametrize("commits", [LIVE_EVERY - 2, LIVE_EVERY - 1, LIVE_EVERY, 2 * LIVE_EVERY + 3])
def test_a_dataset_is_the_same_however_many_commits_were_read(tmp_path: Path, commits: int) -> None:
    dataset = analysed(tmp_path)
    early = dataset
    for generation in range(commits):
        with dataset.run(UTILISATION_STEP) as run:
            add_rows(run, "utilisation", {"requests": generation})
            dataset = run.commit()
    opened = Dataset.open(tmp_path)
    assert opened == dataset == early.refresh()
    assert opened.read("utilisation")["requests"].to_pylist() == [commits - 1]
    assert opened.read("usage").num_rows == 2
    assert not opened.has("throttled"), "a step drops what it may write and did not"


def test_opening_reads_few_manifests(tmp_path: Path) -> None:
    dataset = analysed(tmp_path)
    for generation in range(2, LIVE_EVERY + 3):
        dataset = analysed(tmp_path, generation)
    for sequence in range(1, LIVE_EVERY):
        (tmp_path / "_runs" / f"{sequence:08}.json").unlink()
    assert Dataset.open(tmp_path) == dataset


def test_a_reader_of_what_was_replaced_gets_what_there_is_now(tmp_path: Path) -> None:
    old = analysed(tmp_path, 1)
    analysed(tmp_path, 2)
    assert old.read("usage")["requests"].to_pylist() == [2, 2]
    assert old.quotas() == quotas_of(2.0)
    both = old.read_tables(("usage", "clients"))
    assert {name: table["requests"].to_pylist() for name, table in both.items()} == {"usage": [2, 2], "clients": [2]}


def test_a_reader_learns_that_a_table_was_dropped(tmp_path: Path) -> None:
    old = analysed(tmp_path)
    with old.run(RESOLVE_STEP) as run:
        run.add("clients")
        run.set_quotas(quotas_of(5.0))
        run.commit()
    with pytest.raises(MissingTableError):
        old.read("utilisation")


def test_a_file_that_somebody_deleted_is_named(tmp_path: Path) -> None:
    dataset = analysed(tmp_path)
    path = dataset.files("clients")[0].path
    (tmp_path / path).unlink()
    with pytest.raises(DamagedFileError) as caught:
        dataset.read("clients")
    assert (caught.value.path, caught.value.written_by) == (path, "resolve")
    assert dataset.read("usage").num_rows == 2


@pytest.mark.parametrize("length", [0, 3, 100])
def test_a_file_that_was_cut_short_is_named(tmp_path: Path, length: int) -> None:
    dataset = analysed(tmp_path)
    path = tmp_path / dataset.files("clients")[0].path
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(DamagedFileError) as caught:
        dataset.read("clients")
    assert caught.value.path == dataset.files("clients")[0].path
    assert isinstance(caught.value, InputError)


def test_parquet_readers_find_the_files_of_a_table_by_a_pattern(tmp_path: Path) -> None:
    """Between runs nothing else lies in the folders of tables."""
    dataset = analysed(tmp_path)
    with dataset.run(UTILISATION_STEP) as run:
        add_rows(run, "utilisation", {"requests": 3}, {"requests": 4})
        dataset = run.commit()
    for name in ("usage", "utilisation"):
        found = {path.relative_to(tmp_path).as_posix() for path in (tmp_path / name).rglob("*.parquet")}
        assert found == {file.path for file in dataset.files(name)}
        assert pq.read_table(tmp_path / name).num_rows == 2
