"""Processes that write to a dataset and are killed at a chosen point, alone and two at a time."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any, Final, Self

import msgspec
import pyarrow as pa

from kquota.pipeline.dataset import runs
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.errors import DamagedFileError, MissingTableError
from kquota.pipeline.dataset.manifest import RUNS
from kquota.pipeline.dataset.steps import UTILISATION_STEP
from kquota.pipeline.dataset.summary import Summary
from kquota.pipeline.dataset.tables import ALL_TABLES
from kquota.pipeline.storage.local import LocalStorage
from tests.kit.datasets import add_rows, analyse, analysed, left_over

__all__ = ["KILLED", "MortalStorage", "Trial", "clean", "in_process", "replace_analysis", "trial"]

KILLED: Final = -signal.SIGKILL
_TABLES: Final = ("utilisation", "throttled")
_FILES: Final = 3
"""Of each table that a writer writes, with a row in each."""
_CONTEXT: Final = get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__])


class MortalStorage(LocalStorage):
    """One that kills its process just before its `dies_at`-th change, or in the middle of that.

    What it would have done is written to a file beside the dataset, called by the process.
    """

    dies_at = 0
    changes = 0
    counts_from = ""
    """The ending of the path with which counting begins."""

    @classmethod
    def at(cls, url: str, dies_at: int, counts_from: str = "") -> Self:
        """One for the rest of this process (0: it does not die)."""
        cls.dies_at, cls.counts_from = dies_at, counts_from
        return cls(url)

    def _change(self, how: str, path: str) -> None:
        if not path.endswith(self.counts_from):
            return
        MortalStorage.counts_from = ""
        MortalStorage.changes += 1
        if self.changes == self.dies_at:
            Path(f"{self.root}.{os.getpid()}").write_text(f"{how} {_kind(path)}")
            os.kill(os.getpid(), signal.SIGKILL)

    def put(self, path: str, content: bytes | pa.Buffer, *, durable: bool = False) -> None:
        self._change("before writing", path)
        super().put(path, content, durable=durable)

    def put_new(self, path: str, content: bytes) -> None:
        self._change("before writing", path)
        super().put_new(path, content)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._change("before removing", path)
            super().delete([path])

    def _write_partial(self, path: str, content: bytes | pa.Buffer, *, durable: bool) -> Path:
        partial = super()._write_partial(path, content, durable=durable)
        self._change("before naming", path)
        return partial


def _kind(path: str) -> str:
    if path.startswith(f"{RUNS}/"):
        return "the manifest" if path.endswith(".json") else "its mark"
    return "a file of a table" if path.split("/", maxsplit=1)[0] in ALL_TABLES else "a copy for people"


def replace_analysis(url: str, generation: int, dies_at: int) -> None:
    """For a process: analyse again, and die at some point (0: never)."""
    analyse(Dataset(MortalStorage.at(url, dies_at)).refresh(), generation)


def clean(url: str, dies_at: int) -> None:
    """For a process: clean, and die at some point (0: never)."""
    Dataset(MortalStorage.at(url, dies_at)).refresh().clean()


def _replace_utilisation(url: str, generation: int, dies_at: int, machine: str) -> None:
    """For a process on a machine of its own: write two tables anew, and die at some point (0: never).

    Points are counted from its mark on, and not while it removes what others left.
    """
    runs._machine = lambda: machine
    storage = MortalStorage.at(url, dies_at, counts_from=".running")
    with Dataset(storage).refresh().run(UTILISATION_STEP) as run:
        for name in _TABLES:
            add_rows(run, name, *({"requests": generation} for _ in range(_FILES)))
        run.summary.throttled_meters = generation
        run.commit()


def _count_changes(url: str, generation: int) -> None:
    """For a process that exits with how many points there are to die at."""
    _replace_utilisation(url, generation, 0, "one")
    sys.exit(MortalStorage.changes)


def in_process(work: Any, *arguments: Any) -> BaseProcess:
    """Start a function of this module in a process of its own; join it to learn how it ended."""
    process = _CONTEXT.Process(target=work, args=arguments)
    process.start()
    return process


@dataclass(slots=True)
class Trial:
    """What came of a number of kills."""

    points: int = 0
    """At which a writer that finds nothing to clean can be killed."""
    kills: Counter[str] = field(default_factory=Counter)
    """By what the writer was about to do."""
    committed: Counter[str] = field(default_factory=Counter)
    """Of these, those whose tables were seen."""
    survived: int = 0
    reads: int = 0
    versions: int = 0
    problems: list[str] = field(default_factory=list)


def trial(url: Path, kills: int, *, seed: int = 18) -> Trial:
    """Let pairs of writers replace two tables and kill them, while this process reads these tables again and again.

    The points at which they die are spread evenly over all there are; in each third pair one lives. Whether tables are
    whole and belong to the summary of their commit is looked at in a dataset that is opened anew, and in an old one.
    """
    found = Trial()
    analysed(url)
    for generation in (2, 3):  # the second removes as many files as those that are killed
        counted = in_process(_count_changes, str(url), generation)
        counted.join()
        assert counted.exitcode is not None
        found.points = counted.exitcode
    deaths = [1 + number * found.points // kills for number in range(kills)]
    Random(seed).shuffle(deaths)
    generations = count(4)
    old = Dataset.open(url)
    while deaths:
        pair = []
        for machine in ("one", "two"):
            lives = machine == "two" and len(deaths) % 3 == 1
            dies_at = deaths.pop() if deaths and not lives else 0
            generation = next(generations)
            process = in_process(_replace_utilisation, str(url), generation, dies_at, machine)
            pair.append((generation, dies_at, process))
        while any(process.is_alive() for *_, process in pair):
            _look(Dataset.open(url) if found.reads % 2 else old, found)
        old = Dataset.open(url)
        # One that had less to do, because of the other, came to its end before that point.
        deaths += [dies_at for dies_at in _count_ends(url, pair, found) if dies_at]
    _look(old, found)
    found.versions = old.version
    _check_cleaned(url, found)
    return found


def _look(dataset: Dataset, found: Trial) -> None:
    """Read tables, which are those of this commit if there is no newer one afterwards."""
    found.reads += 1
    try:
        tables = dataset.read_tables(_TABLES)
    except (DamagedFileError, MissingTableError) as error:
        found.problems.append(str(error))
        return
    rows = [value for table in tables.values() for value in table["requests"].to_pylist()]
    if len(rows) != _FILES * len(_TABLES) or len(set(rows)) != 1:
        found.problems.append(f"not the rows of one run: {rows}")
    elif dataset.refresh().version == dataset.version and dataset.summary.throttled_meters != rows[0]:
        found.problems.append(f"rows of run {rows[0]} with the summary of {dataset.summary.throttled_meters}")


def _count_ends(url: Path, pair: Sequence[tuple[int, int, BaseProcess]], found: Trial) -> Iterator[int]:
    """Yields where those were to die that came to their end."""
    committed = {manifest.summary.throttled_meters for manifest in Dataset.open(url).changes_since(0)}
    for generation, dies_at, process in pair:
        process.join()
        if process.exitcode == KILLED:
            note = Path(f"{url}.{process.pid}")
            point = note.read_text()
            note.unlink()
            found.kills[point] += 1
            found.committed[point] += generation in committed
        elif process.exitcode == 0:
            found.survived += 1
            yield dies_at
            if generation not in committed:
                found.problems.append(f"run {generation} ended, and there is no commit of it")
        else:
            found.problems.append(f"run {generation} ended with {process.exitcode}")


def _check_cleaned(url: Path, found: Trial) -> None:
    """Once it is cleaned, a dataset has its files, its manifests and copies for people of the newest, nothing else."""
    Dataset.open(url).clean(older_than_s=0)
    LocalStorage(str(url)).remove_partial(older_than_s=-3600)
    newest = Dataset.open(url)
    _look(newest, found)
    found.problems += [f"{path} is left" for path in left_over(newest)]
    if msgspec.json.decode((url / "summary.json").read_bytes(), type=Summary) != newest.summary:
        found.problems.append("summary.json is not of the newest commit")
