"""A dataset: tables, their summary and the quotas they were judged by, under one URL.

URL/usage/date=2026-01-05/RUN-ID.parquet    files of tables: final names, never changed
URL/_quotas/RUN-ID.json, _report/...html    the quotas and the report
URL/_runs/00000017.json                     commit 17: what is live, and the summary
URL/_runs/RUN.running, RUN.tmp/...          a run that has not ended, and its temporary files
URL/summary.json, quotas.yaml, quotas/, report.html    copies for people, put after each commit

The view of a dataset is its newest commit. How one is made, and why nobody sees a part of it: :mod:`.run`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from kquota.files import QuotaTimeline
from kquota.pipeline.dataset.commits import commit_ended
from kquota.pipeline.dataset.errors import (
    ConflictError,
    DamagedFileError,
    DatasetExistsError,
    ForeignFilesError,
    Found,
    MissingTableError,
    NotADatasetError,
    NotWritableError,
    WrongFormatError,
)
from kquota.pipeline.dataset.frames import files_source, table_frame
from kquota.pipeline.dataset.manifest import LIVE_EVERY, RUNS, DataFile, Manifest, fold, newest_sequence, read_manifests
from kquota.pipeline.dataset.quotas import decode_quotas
from kquota.pipeline.dataset.runs import dead_runs, end, ended_files, old_runs
from kquota.pipeline.dataset.steps import DOCUMENTS, QUOTAS, written_by
from kquota.pipeline.dataset.summary import Summary
from kquota.pipeline.dataset.tables import ALL_TABLES
from kquota.pipeline.dataset.views import VIEWS, put_views
from kquota.pipeline.dataset.writing import new_id, read_file
from kquota.pipeline.storage.opening import open_storage
from kquota.pipeline.storage.port import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kquota.config import BrokerConfig
    from kquota.pipeline.dataset.run import Run
    from kquota.pipeline.dataset.steps import Step
    from kquota.pipeline.progress import Progress
    from kquota.pipeline.spark.parquet_source import ParquetSource

__all__ = ["Dataset"]

_FIRST_FORMAT: Final = "_kquota.json"
"""Only datasets of format 1 have it."""
_OURS: Final = frozenset((RUNS, *(f"_{name}" for name in DOCUMENTS), *ALL_TABLES))
"""Names of folders at the top of a dataset."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Dataset:
    """A value: what a dataset was after one commit. :meth:`refresh` gives what it is now; only a run changes it."""

    storage: Storage
    manifest: Manifest | None = None
    """Of the newest commit, None before the first."""
    live: Mapping[str, DataFile] = field(default_factory=dict)
    """All its files, by path."""

    @classmethod
    def create(cls, url: str | Path, *, overwrite: bool = False) -> Dataset:
        """A new one, or with `overwrite` one that a run may replace. Nothing is written before that run.

        :raises DatasetExistsError: there is one.
        :raises ForeignFilesError: there is what kquota did not write.
        :raises NotWritableError: there is a file.
        """
        storage = open_storage(url)
        try:
            dataset = cls(storage).refresh()
        except NotADirectoryError:
            raise NotWritableError(storage.url, "Not a directory") from None
        if dataset.manifest is not None and not overwrite:
            raise DatasetExistsError(dataset.url)
        if foreign := _foreign(dataset):
            raise ForeignFilesError(dataset.url, sorted(foreign))
        return dataset

    @classmethod
    def open(cls, url: str | Path) -> Dataset:
        """One that is there.

        :raises NotADatasetError: no run has committed one.
        """
        storage = open_storage(url)
        try:
            dataset = cls(storage).refresh()
        except NotADirectoryError:
            raise NotADatasetError(storage.url, "a file") from None
        if dataset.manifest is None:
            raise NotADatasetError(dataset.url, _found(dataset.storage))
        return dataset

    @property
    def url(self) -> str:
        """Where it is."""
        return self.storage.url

    @property
    def version(self) -> int:
        """The number of its newest commit, 0 before the first."""
        return 0 if self.manifest is None else self.manifest.sequence

    @property
    def summary(self) -> Summary:
        """What the steps counted."""
        return Summary.empty() if self.manifest is None else self.manifest.summary

    @property
    def tables(self) -> frozenset[str]:
        """Names of what is there: tables, ``quotas``, ``report``."""
        return frozenset(() if self.manifest is None else self.manifest.tables)

    def has(self, table: str) -> bool:
        """Whether it is there; it may have no rows."""
        return table in self.tables

    def files(self, table: str) -> tuple[DataFile, ...]:
        """What is live of a table, by path: paths are below `url`, also for readers without kquota."""
        return tuple(sorted((file for file in self.live.values() if file.table == table), key=lambda one: one.path))

    def nbytes(self, *tables: str) -> int:
        """How large files of tables are."""
        return sum(file.bytes for file in self.live.values() if file.table in tables)

    def refresh(self) -> Dataset:
        """What it is now."""
        newest = newest_sequence(self.storage)
        if newest <= self.version:
            return self
        manifests = read_manifests(
            self.storage, range(max(self.version + 1, newest - newest % LIVE_EVERY, 1), newest + 1)
        )
        return Dataset(self.storage, manifests[-1], fold(self.live, manifests))

    def after(self, manifest: Manifest) -> Dataset:
        """What it is after the next commit."""
        return Dataset(self.storage, manifest, fold(self.live, [manifest]))

    def changes_since(self, version: int) -> Sequence[Manifest]:
        """The commits that came after a version, up to this."""
        return read_manifests(self.storage, range(version + 1, self.version + 1))

    def read(self, table: str, *, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of a table, of one commit: this, or a newer one that replaced its files in between.

        :raises MissingTableError: it is not there.
        :raises DamagedFileError: a file is missing or cannot be read.
        """
        return self.read_tables((table,), columns=columns)[table]

    def read_tables(self, tables: Sequence[str], *, columns: Sequence[str] | None = None) -> dict[str, pa.Table]:
        """As :meth:`read`, all tables of the same commit."""
        return self.retrying(lambda dataset: {table: _read_table(dataset, table, columns) for table in tables})

    def quotas(self) -> QuotaTimeline | None:
        """Those it was judged by, None before any; as :meth:`read`, of this or a newer commit."""
        return self.retrying(_read_quotas)

    def frame(self, spark: SparkSession, table: str) -> DataFrame:
        """A table for Spark. A run that replaces it makes a job that still reads it fail.

        :raises MissingTableError: it is not there.
        :raises DamagedFileError: a file is missing or was cut short.
        :raises ConflictError: it was replaced since the dataset was opened.
        """
        self._check_files(table)
        return table_frame(spark, self.storage, ALL_TABLES[table], self.files(table))

    def source(self, spark: SparkSession, table: str) -> ParquetSource:
        """As :meth:`frame`: Arrow batches on Spark's workers, without the columns that paths say."""
        self._check_files(table)
        return files_source(spark, self.storage, ALL_TABLES[table].file_schema, self.files(table))

    def require(self, table: str) -> None:
        """:raises MissingTableError: it is not there."""
        if not self.has(table):
            raise MissingTableError(self.url, table, written_by(table).name)

    def _check_files(self, table: str) -> None:
        self.require(table)
        sizes = {info.path: info.bytes for info in self.storage.list(f"{table}/")}
        for file in self.files(table):
            if sizes.get(file.path) != file.bytes:
                if by := {one.step for one in self.refresh().changes_since(self.version) if table in one.changed}:
                    raise ConflictError(self.url, [table], sorted(by))
                raise DamagedFileError(self.url, file.path, written_by(table).name)

    def run(
        self,
        step: Step,
        *,
        spark: SparkSession | None = None,
        progress: Progress | None = None,
        broker: BrokerConfig | None = None,
        into: Dataset | None = None,
    ) -> Run:
        """A context in which a step writes its tables. To enter it may raise BusyError, as :class:`.run.Run` says.

        :param into: another dataset, which what the step writes replaces; without it the dataset that is read gets it.
        :raises MissingTableError: what the step reads is not there.
        """
        from kquota.pipeline.dataset.run import Run  # which imports this

        return Run(self, step, self if into is None else into, spark=spark, progress=progress, broker=broker)

    def clean(self, *, older_than_s: float | None = None, dry_run: bool = False) -> list[str]:
        """Remove what runs that were killed left; returns the paths. Runs that live lose nothing.

        :param older_than_s: runs of other machines that began longer ago are taken for killed. One that lives all the
            same gets a ConflictError at its commit. In a dataset without a commit they are left alone.
        :param dry_run: remove nothing, and return the same paths.
        """
        dead = dead_runs(self.storage)
        if older_than_s is not None and self.refresh().version and (old := old_runs(self.storage, older_than_s)):
            if not dry_run:
                commit_ended(self, new_id(), old)
            dead += old
        ended = ended_files(self.storage, dead)
        newest = self.refresh()
        garbage = [path for path in ended if path not in newest.live]
        if not dry_run:
            self.storage.delete(garbage)
            self.storage.remove_partial()
            put_views(newest)
            end(self.storage, *dead)
        return garbage

    def retrying(self, read: Callable[[Dataset], _T]) -> _T:
        """Read, and again from a newer commit as long as files are gone because of one."""
        dataset = self
        while True:
            try:
                return read(dataset)
            except FileNotFoundError as error:
                newest = dataset.refresh()
                if newest.version == dataset.version:
                    raise dataset._missing(error) from None
                dataset = newest

    def _missing(self, error: FileNotFoundError) -> Exception:
        there = {file.path for file in self.storage.list()}
        lost = next((file for file in self.live.values() if file.path not in there), None)
        return error if lost is None else DamagedFileError(self.url, lost.path, written_by(lost.table).name)


def _read_table(dataset: Dataset, name: str, columns: Sequence[str] | None) -> pa.Table:
    dataset.require(name)
    table = ALL_TABLES[name]
    columns = table.columns if columns is None else columns
    parts = [pa.schema([table.arrow_schema.field(column) for column in columns]).empty_table()]
    for file in dataset.files(name):
        try:
            parts.append(read_file(dataset.storage, file, table, columns))
        except pa.ArrowInvalid:
            raise DamagedFileError(dataset.url, file.path, written_by(name).name) from None
    return pa.concat_tables(parts)


def _read_quotas(dataset: Dataset) -> QuotaTimeline | None:
    for file in dataset.files(QUOTAS):
        return decode_quotas(dataset.storage.read(file.path), name=f"{dataset.url}/{file.path}")
    return None


def _foreign(dataset: Dataset) -> set[str]:
    """Names at the top that are neither a dataset's nor of runs that ended without a commit."""
    names = _names(dataset.storage)
    if RUNS not in names:
        return names
    return names - _OURS if dataset.manifest is None else names - _OURS - {*VIEWS}


def _found(storage: Storage) -> Found:
    names = _names(storage)
    return "nothing" if not names else "an unfinished run" if RUNS in names else "other files"


def _names(storage: Storage) -> set[str]:
    """Of files and folders at the top.

    :raises WrongFormatError: there is a dataset of format 1.
    """
    names = {file.path.split("/", 1)[0] for file in storage.list()}
    if _FIRST_FORMAT in names:
        raise WrongFormatError(storage.url, 1)
    return names
