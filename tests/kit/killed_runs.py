"""Processes that write to a dataset and are killed at a chosen point, alone and two at a time."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any, Final

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
from kquota.pipeline.storage.object_store import ObjectStorage
from kquota.pipeline.storage.port import Storage
from tests.kit.datasets import add_rows, analyse, analysed, left_over

__all__ = ["KILLED", "Place", "Trial", "clean", "in_process", "replace_analysis", "trial"]

KILLED: Final = -signal.SIGKILL
_TABLES: Final = ("utilisation", "throttled")
_FILES: Final = 3
"""Of each table that a writer writes, with a row in each."""
_CONTEXT: Final = get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__])


@dataclass
class _Death:
    """When this process dies."""

    at: int = 0
    """At which change; 0: never."""
    note: str = ""
    """The file that is told what it would have done then."""
    counts_from: str = ""
    """The ending of the path with which counting begins."""
    changes: int = 0

    def change(self, how: str, path: str) -> None:
        """Just before a change, or in the middle of it."""
        if not path.endswith(self.counts_from):
            return
        self.counts_from = ""
        self.changes += 1
        if self.changes == self.at:
            Path(self.note).write_text(f"{how} {_kind(path)}")
            os.kill(os.getpid(), signal.SIGKILL)


_DEATH: Final = _Death()


class _Mortal:
    """Of a storage, which it stands before as a base class (hence the ignored types): changes that kill the process."""

    def put(self, path: str, content: bytes | pa.Buffer, *, durable: bool = False) -> None:
        _DEATH.change("before writing", path)
        super().put(path, content, durable=durable)  # type: ignore[misc]

    def put_new(self, path: str, content: bytes) -> None:
        _DEATH.change("before writing", path)
        super().put_new(path, content)  # type: ignore[misc]

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            _DEATH.change("before removing", path)
            super().delete([path])  # type: ignore[misc]


class _MortalFolder(_Mortal, LocalStorage):
    def _write_partial(self, path: str, content: bytes | pa.Buffer, *, durable: bool) -> Path:
        partial = super()._write_partial(path, content, durable=durable)
        _DEATH.change("before naming", path)
        return partial


class _MortalObjects(_Mortal, ObjectStorage):
    pass


@dataclass(frozen=True)
class Place:
    """Where a dataset is."""

    url: str
    notes: Path
    """A folder on this machine."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What the processes that write need to reach it."""

    def note(self, pid: int | None) -> Path:
        """What a process was about to do when it was killed."""
        return self.notes / f"killed-{pid}"

    def mortal(self, dies_at: int, counts_from: str = "") -> Storage:
        """For the rest of this process: a storage that kills it at its `dies_at`-th change (0: never)."""
        os.environ.update(self.environment)
        _DEATH.at, _DEATH.counts_from, _DEATH.note = dies_at, counts_from, str(self.note(os.getpid()))
        if "://" in self.url:
            return _MortalObjects.open(self.url)
        return _MortalFolder(self.url)


def _kind(path: str) -> str:
    if path.startswith(f"{RUNS}/"):
        return "the manifest" if path.endswith(".json") else "its mark"
    return "a file of a table" if path.split("/", maxsplit=1)[0] in ALL_TABLES else "a copy for people"


def replace_analysis(url: str, generation: int, dies_at: int) -> None:
    """For a process: analyse again, and die at some point (0: never)."""
    analyse(Dataset(_beside(url).mortal(dies_at)).refresh(), generation)


def clean(url: str, dies_at: int) -> None:
    """For a process: clean, and die at some point (0: never)."""
    Dataset(_beside(url).mortal(dies_at)).refresh().clean()


def _beside(url: str) -> Place:
    return Place(url, Path(url).parent)


def _replace_utilisation(place: Place, generation: int, dies_at: int, machine: str) -> None:
    """For a process on a machine of its own: write two tables anew, and die at some point (0: never).

    Points are counted from its mark on, and not while it removes what others left.
    """
    runs._machine = lambda: machine
    storage = place.mortal(dies_at, counts_from=".running")
    with Dataset(storage).refresh().run(UTILISATION_STEP) as run:
        for name in _TABLES:
            add_rows(run, name, *({"requests": generation} for _ in range(_FILES)))
        run.summary.throttled_meters = generation
        run.commit()


def _count_changes(place: Place, generation: int) -> None:
    """For a process that exits with how many points there are to die at."""
    _replace_utilisation(place, generation, 0, "one")
    sys.exit(_DEATH.changes)


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


def trial(place: Place, kills: int, *, seed: int = 18) -> Trial:
    """Let pairs of writers replace two tables and kill them, while this process reads these tables again and again.

    The points at which they die are spread evenly over all there are; in each third pair one lives. Whether tables are
    whole and belong to the summary of their commit is looked at in a dataset that is opened anew, and in an old one.
    """
    found, url = Trial(), place.url
    analysed(url)
    for generation in (2, 3):  # the second removes as many files as those that are killed
        counted = in_process(_count_changes, place, generation)
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
            process = in_process(_replace_utilisation, place, generation, dies_at, machine)
            pair.append((generation, dies_at, process))
        while any(process.is_alive() for *_, process in pair):
            _look(Dataset.open(url) if found.reads % 2 else old, found)
        old = Dataset.open(url)
        # One that had less to do, because of the other, came to its end before that point.
        deaths += [dies_at for dies_at in _count_ends(place, pair, found) if dies_at]
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


def _count_ends(place: Place, pair: Sequence[tuple[int, int, BaseProcess]], found: Trial) -> Iterator[int]:
    """Yields where those were to die that came to their end."""
    committed = {manifest.summary.throttled_meters for manifest in Dataset.open(place.url).changes_since(0)}
    for generation, dies_at, process in pair:
        process.join()
        if process.exitcode == KILLED:
            note = place.note(process.pid)
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


def _check_cleaned(url: str, found: Trial) -> None:
    """Once it is cleaned, a dataset has its files, its manifests and copies for people of the newest, nothing else."""
    Dataset.open(url).clean(older_than_s=0)
    newest = Dataset.open(url)
    newest.storage.remove_partial(older_than_s=-3600)
    _look(newest, found)
    found.problems += [f"{path} is left" for path in left_over(newest)]
    if msgspec.json.decode(newest.storage.read("summary.json"), type=Summary) != newest.summary:
        found.problems.append("summary.json is not of the newest commit")
