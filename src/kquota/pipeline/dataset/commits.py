"""How a commit is made: by creating the manifest with the next number, which one writer alone can.

So a writer that was slower has not committed, looks at what the others changed, and takes the number after theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from time import sleep
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from kquota import __version__
from kquota.clock import SystemClock
from kquota.pipeline.dataset.errors import NotWritableError
from kquota.pipeline.dataset.manifest import LIVE_EVERY, DataFile, Manifest, manifest_path

if TYPE_CHECKING:
    from kquota.pipeline.dataset.dataset import Dataset
    from kquota.pipeline.dataset.summary import Summary

__all__ = ["CLEAN", "commit", "commit_ended", "next_manifest"]

CLEAN: Final = "clean"
"""The step of commits that only take runs for dead."""
_PAUSE_S: Final = 0.1
_ATTEMPTS: Final = 100


def next_manifest(
    before: Dataset,
    *,
    run: str,
    step: str,
    add: Mapping[str, Sequence[DataFile]],
    changed: Collection[str],
    summary: Summary,
) -> Manifest:
    """A commit that puts `add` (files by the name of their table) in place of `changed` (names), or drops those."""
    changed = sorted(changed)
    return Manifest(
        sequence=before.version + 1,
        run=run,
        step=step,
        kquota=__version__,
        committed_ms=SystemClock().now_ms(),
        add=[file for files in add.values() for file in files],
        remove=[file.path for name in changed for file in before.files(name)],
        changed=changed,
        tables=sorted(before.tables.difference(changed).union(add)),
        summary=summary,
    )


def commit(dataset: Dataset, change: Callable[[Dataset], Manifest]) -> Dataset:
    """Make the next commit; gives the dataset after it.

    :param change: makes it of the dataset before it, and is asked again where another writer was faster.
    :raises NotWritableError: another writer has begun the commit and does not end it.
    """
    attempts = 0
    while True:
        before = dataset.refresh()
        manifest = change(before)
        if manifest.sequence % LIVE_EVERY == 0:
            manifest = replace(manifest, live=list(before.after(manifest).live.values()))
        try:
            dataset.storage.put_new(manifest_path(manifest.sequence), msgspec.json.encode(manifest))
        except FileExistsError:
            newest = dataset.refresh()
            if newest.manifest is not None and newest.manifest.run == manifest.run:
                return newest  # it was this one, asked for twice: the first answer was lost on its way
            if newest.version > before.version:
                continue
            # It is still empty, or a network mount does not list it yet.
            attempts += 1
            if attempts == _ATTEMPTS:
                reason = f"commit {manifest.sequence} was begun and not ended; if no run is at work any more, delete "
                raise NotWritableError(dataset.url, reason + manifest_path(manifest.sequence)) from None
            sleep(_PAUSE_S)
            continue
        return before.after(manifest)


def commit_ended(dataset: Dataset, cleaner: str, runs: Sequence[str]) -> None:
    """Take runs for dead: those of them that have not committed before cannot do so any more.

    :param cleaner: the id of who does this.
    """

    def change(before: Dataset) -> Manifest:
        manifest = next_manifest(before, run=cleaner, step=CLEAN, add={}, changed=(), summary=before.summary)
        return replace(manifest, ended=list(runs))

    commit(dataset, change)
