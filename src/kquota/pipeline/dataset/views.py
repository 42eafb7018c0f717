"""Copies of what a dataset has besides tables, under names that people and other tools look for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kquota.pipeline.dataset.quotas import quota_files
from kquota.pipeline.dataset.steps import REPORT
from kquota.pipeline.dataset.summary import encode_summary

if TYPE_CHECKING:
    from kquota.pipeline.dataset.dataset import Dataset

__all__ = ["VIEWS", "put_views"]

VIEWS: Final = ("summary.json", "quotas.yaml", "quotas", "report.html")
"""Their names, of files and folders, below the dataset's URL."""


def put_views(dataset: Dataset) -> None:
    """Write those of the newest commit, even if others commit meanwhile; remove what is there of earlier ones."""
    while dataset.manifest is not None:
        dataset.retrying(_put)
        newest = dataset.refresh()
        if newest.version == dataset.version:
            return
        dataset = newest


def _put(dataset: Dataset) -> None:
    """Write those that are not as they should be.

    :raises FileNotFoundError: a newer commit has replaced the report.
    """
    storage, summary, quotas = dataset.storage, dataset.summary, dataset.quotas()
    views = {"summary.json": encode_summary(summary)}
    if quotas is not None:
        views |= quota_files(quotas, summary.start_ms)
    for file in dataset.files(REPORT):
        views["report.html"] = storage.read(file.path)
    there = {file.path for file in storage.list() if file.path.split("/", 1)[0] in VIEWS}
    for path, content in views.items():
        try:
            if path in there and storage.read(path) == content:
                continue
        except FileNotFoundError:  # another run removed it in this moment
            pass
        storage.put(path, content)
    storage.delete(there - views.keys())
