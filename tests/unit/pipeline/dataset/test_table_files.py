"""Tables of an earlier run: there and whole, or refused with what writes them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kquota.errors import InputError
from kquota.pipeline.dataset.table_files import NotSharedStorageError, check_shared, table_folder, take_in
from kquota.pipeline.dataset.tables import OCCASIONAL, TABLES, USAGE, UTILISATION
from kquota.pipeline.ingest.chunks import write_data_file


@pytest.mark.parametrize(
    "name, step",
    {
        "usage": "`kquota analyze` or `kquota pipeline ingest`",
        "clients": "`kquota pipeline resolve`",
        "limits": "`kquota pipeline resolve`",
        "calibration": "`kquota pipeline utilisation`",
        "curve": "`kquota pipeline sweep`",
        "recommendations": "`kquota pipeline recommend`",
    }.items(),
)
def test_a_table_that_is_not_there(tmp_path: Path, name: str, step: str) -> None:
    """An empty folder is no table: one without rows has a file."""
    table = (TABLES | OCCASIONAL)[name]
    for _ in range(2):
        with pytest.raises(InputError) as caught:
            table_folder(tmp_path, table)
        assert str(caught.value) == f"{tmp_path} has no table {name}: {step} writes it"
        (tmp_path / name).mkdir(exist_ok=True)


def test_a_file_that_was_cut_short(tmp_path: Path) -> None:
    """One of several, in a folder for a date; of whatever length."""
    folder = tmp_path / USAGE.name / "date=2026-01-02"
    folder.mkdir(parents=True)
    for name in ("a", "b"):
        pq.write_table(pa.table({"x": [1]}), folder / f"{name}.parquet")
    assert table_folder(tmp_path, USAGE) == tmp_path / USAGE.name
    whole = (folder / "b.parquet").read_bytes()
    for length in (0, 3, 4, len(whole) // 2, len(whole) - 1):
        (folder / "b.parquet").write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"b\.parquet is damaged or was cut short: `kquota analyze` or"):
            table_folder(tmp_path, USAGE)


def test_steps_are_named_as_the_command_line_has_them(tmp_path: Path) -> None:
    from kquota.cli.pipeline.group import pipeline

    for table in (TABLES | OCCASIONAL).values():
        with pytest.raises(InputError) as caught:
            table_folder(tmp_path, table)
        assert str(caught.value).split("pipeline ")[1].split("`")[0] in pipeline.commands
    assert UTILISATION.name in pipeline.commands


def test_files_that_workers_wrote_elsewhere(tmp_path: Path) -> None:
    """They say which they wrote; what is not here is no table without rows."""
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    files = [write_data_file(folder, USAGE.name, pa.table({"x": [1]})) for folder in (here, elsewhere)]
    message = r"wrote staged/usage/.* and it is not here: the directory has to be on a file system"
    with pytest.raises(NotSharedStorageError, match=message):
        check_shared(here, files)
    with pytest.raises(NotSharedStorageError, match=message):
        take_in(here, USAGE, files)
    assert not (here / USAGE.name).exists()
    take_in(here, USAGE, files[:1])
    assert table_folder(here, USAGE) == here / USAGE.name
