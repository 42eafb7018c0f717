"""A run: what one step reads and writes. Nothing of it is seen before its commit, and then all of it at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from io import StringIO
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from msgspec.structs import replace

from kquota.clock import SystemClock
from kquota.config import BrokerConfig
from kquota.errors import KquotaError
from kquota.files import QuotaTimeline
from kquota.pipeline.dataset.commits import CLEAN, commit, next_manifest
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.errors import ConflictError, NotSharedStorageError, NotWritableError
from kquota.pipeline.dataset.frames import files_source, table_frame, write_frame
from kquota.pipeline.dataset.manifest import RUNS, DataFile, Manifest
from kquota.pipeline.dataset.quotas import encode_quotas
from kquota.pipeline.dataset.runs import begin, dead_runs, end, new_path, written_files
from kquota.pipeline.dataset.steps import QUOTAS, REPORT, RESOLVE_STEP, Step, changed_by, reset_parts
from kquota.pipeline.dataset.summary import Summary
from kquota.pipeline.dataset.tables import ALL_TABLES
from kquota.pipeline.dataset.views import put_views
from kquota.pipeline.dataset.writing import TableWriter, new_id
from kquota.pipeline.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kquota.pipeline.spark.parquet_source import ParquetSource

__all__ = ["Run"]


class Run:
    """A context. Leaving it without :meth:`commit` removes what was written.

    `summary` is that of the dataset, without what the step counts anew: the step sets those fields.
    """

    def __init__(
        self,
        dataset: Dataset,
        step: Step,
        target: Dataset,
        *,
        spark: SparkSession | None = None,
        progress: Progress | None = None,
        broker: BrokerConfig | None = None,
    ) -> None:
        for table in step.reads:
            dataset.require(table)
        self.id = new_id()
        self.dataset = dataset
        """As it was when the run was made."""
        self.step = step
        self._is_own = target.storage.identity == dataset.storage.identity
        self.target = dataset if self._is_own else target
        self.broker = BrokerConfig() if broker is None else broker
        self.progress = Progress(StringIO(), SystemClock(), quiet=True) if progress is None else progress
        self.session = spark
        """May be given later: see :attr:`spark`."""
        self._added: dict[str, list[DataFile]] = {}
        self._seen = Dataset(dataset.storage) if step.begins_anew else dataset
        self.summary = self._base(dataset.summary)

    @property
    def spark(self) -> SparkSession:
        """The session that the run was given."""
        assert self.session is not None, "a step with Spark was run without a session"
        return self.session

    def __enter__(self) -> Self:
        """Announce the run.

        :raises BusyError: a run that lives on this machine, also in this process, writes some of the same tables.
        :raises NotWritableError: the storage refuses.
        """
        try:
            if dead_runs(self.target.storage):
                self.target.clean()
            begin(self.target.storage, self.id, self.step.writes)
        except OSError as error:
            raise NotWritableError(self.target.url, error.strerror or str(error)) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        storage = self.target.storage
        newest = self.target.refresh()
        try:
            if isinstance(error, Exception) and not isinstance(error, KquotaError):
                self._check_unchanged(newest, error)  # what it read may be gone because of another run
        finally:
            # After an error in the middle of the commit, the newest manifest says whether it took place.
            storage.delete(path for path, run in written_files(storage) if run == self.id and path not in newest.live)
            end(storage, self.id)

    def stage(
        self, name: str, rows: Callable[[], int] | None = None, of: int | None = None, unit: str = "lines"
    ) -> AbstractContextManager[None]:
        """A stage with a name, as :meth:`Progress.stage`; its time goes into the summary."""
        return self.progress.stage(name, rows, of, unit)

    def has(self, table: str) -> bool:
        """Whether this run wrote a table, or the dataset has it."""
        return table in self._added or self._seen.has(table)

    def files(self, table: str) -> tuple[DataFile, ...]:
        """Those that this run wrote of a table, otherwise those of the dataset."""
        return tuple(self._added[table]) if table in self._added else self._seen.files(table)

    def frame(self, table: str) -> DataFrame:
        """A table that this run wrote, otherwise that of the dataset.

        :raises MissingTableError: neither has it.
        """
        if table not in self._added:
            return self._seen.frame(self.spark, table)
        return table_frame(self.spark, self.target.storage, ALL_TABLES[table], self._added[table])

    def source(self, table: str) -> ParquetSource:
        """As :meth:`frame`: Arrow batches on Spark's workers, without the columns that paths say."""
        if table not in self._added:
            return self._seen.source(self.spark, table)
        return self.temporary_source(ALL_TABLES[table].file_schema, self._added[table])

    def temporary_source(self, schema: pa.Schema, files: Sequence[DataFile]) -> ParquetSource:
        """Arrow batches of files that this run wrote, whatever they are of."""
        return files_source(self.spark, self.target.storage, schema, files)

    def quotas(self) -> QuotaTimeline | None:
        """Those of the dataset."""
        return self._seen.quotas()

    def write(self, table: str, frame: DataFrame) -> None:
        """Let workers write a table."""
        self.add(table, write_frame(frame, self.writer(table)))

    def writer(self, table: str) -> TableWriter:
        """For workers; what it gives back is to be given to :meth:`add`."""
        return TableWriter(self.target.storage, table, self.id, ALL_TABLES[table])

    def temporary(self, kind: str) -> TableWriter:
        """For workers: files that are gone with the run."""
        return TableWriter(self.target.storage, f"{RUNS}/{self.id}.tmp/{kind}", self.id)

    def count_temporary(self, kind: str) -> int:
        """How many temporary files of a kind workers have written so far."""
        return len(self.target.storage.list(f"{RUNS}/{self.id}.tmp/{kind}/"))

    def add(self, table: str, files: Iterable[DataFile] = ()) -> None:
        """Make files part of a table that this run writes; without any, it is there and has no rows.

        :raises NotSharedStorageError: a worker wrote one elsewhere.
        """
        assert table in self.step.writes, f"{self.step.name} does not write {table}"
        added = list(files)
        self.check_shared(added)
        self._added.setdefault(table, []).extend(added)

    def check_shared(self, files: Sequence[DataFile]) -> None:
        """See that files are there that workers wrote.

        :raises NotSharedStorageError: one is not.
        """
        folders = {file.path.rpartition("/")[0] for file in files}
        there = {info.path for folder in folders for info in self.target.storage.list(f"{folder}/")}
        for file in files:
            if file.path not in there:
                raise NotSharedStorageError(self.target.url, file.path)

    def set_quotas(self, quotas: QuotaTimeline) -> None:
        """Keep the quotas that the dataset is judged by from now on."""
        self._keep(QUOTAS, encode_quotas(quotas), "json")

    def set_report(self, html: str) -> None:
        """Keep the report."""
        self._keep(REPORT, html.encode(), "html")

    def commit(self) -> Dataset:
        """Make all of it visible at once; gives the dataset that was written to, as it is then.

        What the step may write and did not is dropped, and so is what new quotas make void.

        :raises ConflictError: what this run has read was changed meanwhile.
        """
        committed = commit(self.target, self._manifest)
        put_views(committed)
        assert committed.manifest is not None
        self.target.storage.delete(committed.manifest.remove)
        return committed

    def _keep(self, name: str, content: bytes, ending: str) -> None:
        path = new_path(f"_{name}", self.id, new_id(), ending)
        self.target.storage.put(path, content, durable=True)
        self._added.pop(name, None)
        self.add(name, [DataFile(path, 0, len(content))])

    def _check_unchanged(self, now: Dataset, cause: Exception | None = None) -> None:
        """See that nothing was changed that this run has read, or found not to be there.

        :param now: the target.
        :raises ConflictError: something was, or this run was taken for dead.
        """
        tables: set[str] = set()
        by: set[str] = set()
        since = self._by_others(now, self.target.version)
        if since and self.target.version == 0:  # a new dataset was to be made, and is there
            tables |= now.tables
            by |= {manifest.step for manifest in since}
        if any(self.id in manifest.ended for manifest in since):
            tables |= self._added.keys()
            by.add(CLEAN)
        for manifest in since if self._is_own else self._by_others(self.dataset.refresh(), self.dataset.version):
            if both := self.step.used.intersection(manifest.changed):
                tables |= both
                by.add(manifest.step)
        if by:
            raise ConflictError(self.target.url, sorted(tables), sorted(by)) from cause

    def _by_others(self, dataset: Dataset, version: int) -> list[Manifest]:
        """Commits of other runs that came after a version."""
        return [manifest for manifest in dataset.changes_since(version) if manifest.run != self.id]

    def _manifest(self, before: Dataset) -> Manifest:
        self._check_unchanged(before)
        return next_manifest(
            before,
            run=self.id,
            step=self.step.name,
            add=self._added,
            changed=changed_by(self.step, before.tables) if self._is_own else before.tables.union(self.step.writes),
            summary=self._merged(before.summary if self._is_own else self.dataset.summary),
        )

    def _merged(self, summary: Summary) -> Summary:
        """What other steps counted, which may be more than when this run began, and what this one did."""
        merged = self._base(summary)
        for part in self.step.parts:
            setattr(merged, part, getattr(self.summary, part))
        merged.seconds = merged.seconds | self.progress.seconds
        return merged

    def _base(self, summary: Summary) -> Summary:
        """A summary without what does not outlive this run."""
        empty = Summary.empty()
        reset = reset_parts(self.step if self._is_own else RESOLVE_STEP).union(self.step.parts)
        return replace(deepcopy(summary), **{part: getattr(empty, part) for part in reset})
