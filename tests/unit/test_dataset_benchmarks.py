"""The check of commits of datasets, small: what it writes down, and that it says when something is wrong."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import check_dataset_commits
from tests.kit.killed_runs import Trial


def test_the_check_writes_its_result_and_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_dataset_commits.main(["--kills", "2", "--results", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "dataset-commits.json").read_text())
    assert sum(row["kills"] for row in found["killed"].values()) == 2
    assert found["problems"] == []
    page, printed = (tmp_path / "README.md").read_text(), capsys.readouterr().out
    for point, row in found["killed"].items():
        assert f"| {point} | {row['kills']} | {row['committed']} |" in page
        assert point in printed
    assert found["command"] in page


def test_the_check_fails_where_a_reader_saw_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = Trial(points=25, kills=Counter(["before writing the manifest"]), problems=["not the rows of one run"])
    monkeypatch.setattr(check_dataset_commits, "trial", lambda *_, **__: seen)
    assert check_dataset_commits.main(["--results", str(tmp_path)]) == 1
    assert "not the rows of one run" in capsys.readouterr().out
    assert "- not the rows of one run" in (tmp_path / "README.md").read_text()
