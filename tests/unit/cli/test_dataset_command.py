"""`kquota dataset`: what is in a dataset, for people and other programs, and what killed runs left there."""

import json
from pathlib import Path

import duckdb
import pytest

from kquota.cli import run
from tests.kit.analysis_directory import AnalysisDirectory


@pytest.fixture
def url(tmp_path: Path) -> Path:
    directory = AnalysisDirectory()
    for second in range(3):
        directory.usage("alice", "etl", second, 100.0)
    directory.client("alice", "etl", limit=10.0, limit_source="user=alice")
    return directory.write(tmp_path / "out")


def leftover(url: Path) -> Path:
    """A file as a run writes it that was killed before its commit."""
    path = url / "usage" / "date=2026-01-01" / "0123456789ab-0123456789ab.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"half")
    return path


def test_paths_are_what_another_program_reads(url: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leftover(url)
    assert run(["dataset", "files", str(url), "--table", "usage", "--format", "paths"]) == 0
    paths = capsys.readouterr().out.splitlines()
    assert duckdb.execute("select sum(amount) from read_parquet($1)", [paths]).fetchone() == (300.0,)


def test_files_in_json_have_their_rows_and_partitions(url: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dataset", "files", str(url), "--format", "json"]) == 0
    files = json.loads(capsys.readouterr().out)
    rows = {file["table"]: file["rows"] for file in files}
    assert (rows["usage"], rows["clients"]) == (3, 1)
    assert {"date"} == {name for file in files if file["table"] == "usage" for name in file["partition"]}
    assert all(Path(file["path"]).stat().st_size == file["bytes"] for file in files)


def test_a_table_that_there_is_not_is_named(url: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dataset", "files", str(url), "--table", "usages"]) == 2
    assert "usages: there is requests, usage, clients" in capsys.readouterr().err
    assert run(["dataset", "files", str(url), "--table", "curve"]) == 2
    assert "which the step sweep writes" in capsys.readouterr().err


def test_a_description_says_which_step_wrote_each_table(url: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dataset", "describe", str(url)]) == 0
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines()[1:]}
    assert lines["usage"][1] == "3"
    assert run(["dataset", "describe", str(url), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["url"] == str(url)
    (usage,) = (table for table in found["tables"] if table["name"] == "usage")
    assert (usage["rows"], usage["step"]) == (3, lines["usage"][4])


def test_what_a_killed_run_left_is_removed_unless_it_is_only_asked_for(
    url: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = leftover(url)
    assert run(["dataset", "clean", str(url), "--dry-run"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [str(path.relative_to(url))]
    assert "1 file would be removed" in captured.err
    assert path.exists()
    assert run(["dataset", "clean", str(url)]) == 0
    assert not path.exists()
    assert run(["dataset", "files", str(url), "--table", "usage"]) == 0


@pytest.mark.parametrize("age", ["soon", "5", "1y", "-1h"])
def test_an_age_has_a_unit(url: Path, age: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dataset", "clean", str(url), f"--older-than={age}"]) == 2
    assert "90s, 30min, 12h or 7d" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["files", "describe", "clean"])
def test_what_is_no_dataset_is_refused(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dataset", command, str(tmp_path / "missing")]) == 2
    assert "kquota analyze --out" in capsys.readouterr().err
