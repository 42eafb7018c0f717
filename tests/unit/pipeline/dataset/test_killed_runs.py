"""Runs that are killed at every point: a dataset is that of before or that of after, and nothing is left for good."""

from __future__ import annotations

import json
import signal
from itertools import count
from pathlib import Path
from random import Random
from shutil import copytree

import pytest

from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.steps import SWEEP_STEP
from tests.kit.datasets import (
    analysed,
    clean,
    in_process,
    left_over,
    quotas_of,
    replace_analysis,
    replace_utilisation,
)

OLD, NEW = 1, 2
KILLED = -signal.SIGKILL


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


def test_readers_see_whole_tables_while_two_write_and_some_are_killed(tmp_path: Path) -> None:
    analysed(tmp_path)
    url = str(tmp_path)
    random = Random(18)
    killed = reads = 0
    reader = Dataset.open(url)
    for number in range(6):
        pair = [
            in_process(replace_utilisation, url, 10 + number, random.randint(1, 20), "one"),
            in_process(replace_utilisation, url, 20 + number, 0, "two"),
        ]
        while any(process.is_alive() for process in pair):
            tables = reader.read_tables(("utilisation", "throttled"))
            rows = [value for table in tables.values() for value in table["requests"].to_pylist()]
            assert len(set(rows)) == 1
            assert len(rows) == (2 if rows[0] == 1 else 6)
            reads += 1
        for process in pair:
            process.join()
            assert process.exitcode in (0, KILLED)
            killed += process.exitcode == KILLED
        reader = reader.refresh()
    assert killed == 6
    assert reads > 0
    assert reader.version > 3
    reader.clean(older_than_s=0)
    for partial in tmp_path.rglob(".partial-*"):
        partial.unlink()
    assert left_over(reader.refresh()) == []
