"""Datasets with a few rows, and runs that are killed at a chosen point."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from itertools import count
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa

from kquota.files import QuotaFile, QuotaFileEntry, QuotaTimeline
from kquota.pipeline.dataset import runs
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.manifest import RUNS
from kquota.pipeline.dataset.run import Run
from kquota.pipeline.dataset.steps import ANALYZE_STEP, UTILISATION_STEP
from kquota.pipeline.dataset.storage import LocalStorage
from kquota.pipeline.dataset.tables import ALL_TABLES, Table
from kquota.pipeline.dataset.views import VIEWS
from kquota.quotas import ClientQuotaEntity

__all__ = [
    "USUAL_TABLES",
    "MortalStorage",
    "add_rows",
    "analysed",
    "in_process",
    "left_over",
    "quotas_of",
    "replace_analysis",
    "replace_utilisation",
    "rows_of",
]

USUAL_TABLES: Final = ("requests", "usage", "clients", "utilisation", "throttled", "calibration", "rejected")
"""What every analysis writes."""

_CONTEXT: Final = get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__])


def rows_of(table: Table, *rows: Mapping[str, Any]) -> pa.Table:
    """Rows of a table; what one does not say is null."""
    given = [dict.fromkeys(table.columns) | dict(row) for row in rows]
    assert all(len(row) == len(table.columns) for row in given), "a row has a column that its table has not"
    return pa.Table.from_pylist(given, table.arrow_schema)


def add_rows(run: Run, name: str, *rows: Mapping[str, Any]) -> None:
    """Let a run write a table, a file for each row."""
    run.add(name, [file for row in rows for file in run.writer(name).write(rows_of(ALL_TABLES[name], row))])


def quotas_of(rate: float, *, entity: str = "user=alice") -> QuotaTimeline:
    """One limit, all the time."""
    entry = QuotaFileEntry(ClientQuotaEntity.from_text(entity), {"producer_byte_rate": rate})
    return QuotaTimeline.always(QuotaFile((entry,)))


def analysed(url: str | Path, generation: int = 1) -> Dataset:
    """A dataset as an analysis makes it; its generation is in all tables, quotas, summary and report."""
    return _analyse(Dataset.create(url, overwrite=True), generation)


def _analyse(dataset: Dataset, generation: int) -> Dataset:
    with dataset.run(ANALYZE_STEP) as run:
        days = [{"date": f"2026-01-0{day}", "requests": generation} for day in (1, 2)]
        run.add("usage", run.writer("usage").write(_dated(days)))
        run.add("rejected")
        add_rows(run, "clients", {"user": "alice", "requests": generation})
        add_rows(run, "utilisation", {"requests": generation})
        add_rows(run, "throttled", {"requests": generation})
        run.add("calibration")
        run.set_quotas(quotas_of(float(generation)))
        run.set_report(f"<p>{generation}</p>")
        run.summary.lines = generation
        return run.commit()


def _dated(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    usage = ALL_TABLES["usage"]
    return rows_of(usage, *({**row, "date": pa.scalar(row["date"]).cast(pa.date32()).as_py()} for row in rows))


class MortalStorage(LocalStorage):
    """One that kills its process just before its `dies_at`-th change, or in the middle of that."""

    dies_at = 0
    _changes = count(1)

    @classmethod
    def at(cls, url: str, dies_at: int) -> Self:
        """One for the rest of this process."""
        cls.dies_at = dies_at
        return cls(url)

    def _change(self) -> None:
        if next(self._changes) == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def put(self, path: str, content: bytes | pa.Buffer) -> None:
        self._change()
        super().put(path, content)

    def put_new(self, path: str, content: bytes) -> None:
        self._change()
        super().put_new(path, content)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._change()
            super().delete([path])

    def _write_partial(self, path: str, content: bytes | pa.Buffer, *, sync: bool = False) -> Path:
        partial = super()._write_partial(path, content, sync=sync)
        self._change()
        return partial


def replace_analysis(url: str, generation: int, dies_at: int) -> None:
    """For a process: analyse again, and die at some point (0: never)."""
    _analyse(Dataset(MortalStorage.at(url, dies_at)).refresh(), generation)


def clean(url: str, dies_at: int) -> None:
    """For a process: clean, and die at some point (0: never)."""
    Dataset(MortalStorage.at(url, dies_at)).refresh().clean()


def replace_utilisation(url: str, generation: int, dies_at: int, host: str) -> None:
    """For a process on a machine of this name: write two tables anew, of three files each, and maybe die."""
    runs.gethostname = lambda: host  # type: ignore[attr-defined]
    with Dataset(MortalStorage.at(url, dies_at)).refresh().run(UTILISATION_STEP) as run:
        for name in ("utilisation", "throttled"):
            add_rows(run, name, *({"requests": generation} for _ in range(3)))
        run.commit()


def in_process(work: Any, *arguments: Any) -> BaseProcess:
    """Start one of the functions above in a process of its own; join it to learn how it ended."""
    process = _CONTEXT.Process(target=work, args=arguments)
    process.start()
    return process


def left_over(dataset: Dataset) -> list[str]:
    """Files that are of no use to anybody: neither live, nor manifests, nor copies for people."""
    files = (path.relative_to(dataset.url).as_posix() for path in Path(dataset.url).rglob("*") if path.is_file())
    return sorted(
        path
        for path in files
        if path not in dataset.live
        and path.split("/")[0] not in VIEWS
        and not (path.startswith(f"{RUNS}/") and path.endswith(".json"))
    )
