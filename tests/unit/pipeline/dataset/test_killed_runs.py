"""Runs that are killed at every point: a dataset is that of before or that of after, and nothing is left for good."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from shutil import copytree

import pytest

from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.steps import SWEEP_STEP
from tests.kit.datasets import analysed, left_over, quotas_of
from tests.kit.killed_runs import KILLED, Place, clean, in_process, replace_analysis, trial

OLD, NEW = 1, 2


def generation_of(dataset: Dataset) -> int:
    """The one generation of all that a dataset has."""
    tables = dataset.read_tables(("usage", "clients", "utilisation", "throttled"))
    found = {value for table in tables.values() for value in table["requests"].to_pylist()}
    assert {name: table.num_rows for name, table in tables.items()} == {
        "usage": 2,
        "clients": 1,
        "utilisation": 1,
        "throttled": 1,
    }
    (generation,) = found
    assert dataset.quotas() == quotas_of(float(generation))
    assert dataset.summary.lines == generation
    return int(generation)


def check_clean(dataset: Dataset, generation: int) -> None:
    """Nothing is left of a run that was killed, and the copies for people are those of what is there."""
    for partial in Path(dataset.url).rglob(".partial-*"):
        partial.unlink()  # they go after an hour
    assert left_over(dataset) == []
    assert generation_of(dataset) == generation
    assert json.loads((Path(dataset.url) / "summary.json").read_text())["lines"] == generation
    assert (Path(dataset.url) / "report.html").read_text() == f"<p>{generation}</p>"


@pytest.fixture
def before(tmp_path: Path) -> Path:
    analysed(tmp_path / "before", OLD)
    return tmp_path / "before"


def test_a_run_killed_at_any_point_leaves_all_of_the_old_or_all_of_the_new(tmp_path: Path, before: Path) -> None:
    seen = []
    for dies_at in count(1):
        url = tmp_path / f"killed at {dies_at}"
        copytree(before, url)
        run = in_process(replace_analysis, str(url), NEW, dies_at)
        run.join()
        dataset = Dataset.open(url)
        generation = generation_of(dataset)
        seen.append(generation)
        if run.exitcode == 0:
            check_clean(dataset, NEW)
            break
        assert run.exitcode == KILLED
        if dies_at % 2:
            dataset.clean()
        else:  # the next run here cleans, too
            with dataset.run(SWEEP_STEP):
                pass
        check_clean(dataset.refresh(), generation)
    assert seen == sorted(seen), "there is one point at which a run commits"
    assert len(seen) > 30
    assert seen.count(NEW) > 10, "it was killed after its commit, too"


def test_a_clean_that_is_killed_at_any_point_is_made_good_by_the_next(tmp_path: Path, before: Path) -> None:
    for killed in (16, 30):  # before its commit, and after it
        run = in_process(replace_analysis, str(before), NEW, killed)
        run.join()
        assert run.exitcode == KILLED
        generation = generation_of(Dataset.open(before))
        for dies_at in count(1):
            url = tmp_path / f"{killed}, {dies_at}"
            copytree(before, url)
            cleaner = in_process(clean, str(url), dies_at)
            cleaner.join()
            assert generation_of(Dataset.open(url)) == generation
            if cleaner.exitcode == 0:
                break
            Dataset.open(url).clean()
            check_clean(Dataset.open(url), generation)
        assert dies_at > 3


def test_readers_see_whole_tables_while_two_write_and_are_killed(tmp_path: Path) -> None:
    """Ten times, at points that are spread over all of a run; `benchmarks.check_dataset_commits` does it more often."""
    found = trial(Place(str(tmp_path / "data"), tmp_path), 10)
    assert found.problems == []
    assert found.kills.total() == 10
    assert 0 < found.committed.total() < 10
    assert found.survived > 0
    assert found.reads > 0
