"""Copies of what a dataset has besides tables, under names that people and other tools look for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kquota.files import QuotaTimeline
from kquota.pipeline.dataset.manifest import DataFile
from kquota.pipeline.dataset.quotas import quota_files
from kquota.pipeline.dataset.storage import Storage
from kquota.pipeline.dataset.summary import Summary, encode_summary

__all__ = ["VIEWS", "put_views"]

VIEWS: Final = ("summary.json", "quotas.yaml", "quotas", "report.html")
"""Their names, of files and folders, below the dataset's URL."""


def put_views(storage: Storage, summary: Summary, quotas: QuotaTimeline | None, report: Sequence[DataFile]) -> None:
    """Write those that are not as they should be, and remove others.

    :raises FileNotFoundError: a newer commit has replaced the report.
    """
    views = {"summary.json": encode_summary(summary)}
    if quotas is not None:
        views |= quota_files(quotas, summary.start_ms)
    if report:
        views["report.html"] = storage.read(report[0].path)
    there = {file.path for file in storage.list() if file.path.split("/", 1)[0] in VIEWS}
    for path, content in views.items():
        try:
            if path in there and storage.read(path) == content:
                continue
        except FileNotFoundError:  # another run removed it in this moment
            pass
        storage.put(path, content)
    storage.delete(there - views.keys())
