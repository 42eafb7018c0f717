"""Datasets with a few rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from kquota.files import QuotaFile, QuotaFileEntry, QuotaTimeline
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.manifest import RUNS
from kquota.pipeline.dataset.run import Run
from kquota.pipeline.dataset.steps import ANALYZE_STEP
from kquota.pipeline.dataset.tables import ALL_TABLES, Table
from kquota.pipeline.dataset.views import VIEWS
from kquota.quotas import ClientQuotaEntity

__all__ = [
    "USUAL_TABLES",
    "add_rows",
    "analyse",
    "analysed",
    "left_over",
    "quotas_of",
    "rows_by_table",
    "rows_of",
]

USUAL_TABLES: Final = ("requests", "usage", "clients", "utilisation", "throttled", "calibration", "rejected")
"""What every analysis writes."""


def rows_by_table(url: str | Path) -> dict[str, list[str]]:
    """The rows of all tables, in an order of their own. The last digits of sums depend on the order of the rows."""

    def row(values: dict[str, Any]) -> str:
        return repr([(name, round(x, 6) if isinstance(x, float) else x) for name, x in sorted(values.items())])

    dataset = Dataset.open(url)
    return {name: sorted(map(row, dataset.read(name).to_pylist())) for name in ALL_TABLES if dataset.has(name)}


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
    return analyse(Dataset.create(url, overwrite=True), generation)


def analyse(dataset: Dataset, generation: int) -> Dataset:
    """Replace all of a dataset."""
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
