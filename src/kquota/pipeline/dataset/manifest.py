"""What a commit says: which files it adds and removes, for all tables of a run at once.

``_runs/00000017.json`` is the manifest of commit 17. What is live after it is what manifests 1 to 17 add less what they
remove; each sixteenth lists all of it, so that whoever opens a dataset reads at most sixteen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from kquota.pipeline.dataset.errors import DamagedFileError, WrongFormatError
from kquota.pipeline.dataset.summary import Summary
from kquota.pipeline.storage.port import Storage

__all__ = [
    "FORMAT",
    "LIVE_EVERY",
    "RUNS",
    "DataFile",
    "Manifest",
    "fold",
    "manifest_path",
    "newest_sequence",
    "read_manifests",
]

FORMAT: Final = 2
"""Changes with the layout, so that another version of kquota refuses it rather than misreads it."""
RUNS: Final = "_runs"
"""Folder of manifests, of markers of runs, and of their temporary files."""
LIVE_EVERY: Final = 16
_JSON: Final = ".json"


class DataFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of a table, ``usage/date=2026-01-05/RUN-ID.parquet``, or one of another kind, ``_quotas/RUN-ID.json``.

    `first_ms` and `last_ms` are the least and greatest value of the table's time column, `broker_id` is the broker that
    all rows are of; None where there is no such value or column.
    """

    path: str
    rows: int
    bytes: int
    first_ms: float | None = None
    last_ms: float | None = None
    broker_id: int | None = None

    @property
    def table(self) -> str:
        """What it is of."""
        return self.path.split("/", 1)[0].removeprefix("_")

    @property
    def partition(self) -> dict[str, str]:
        """The columns that its path says: ``{"date": "2026-01-05"}``."""
        return dict(part.split("=", 1) for part in self.path.split("/")[1:-1])


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One commit. Names are those of tables, and ``quotas`` and ``report``."""

    format: Literal[2] = FORMAT
    sequence: int
    run: str
    step: str
    kquota: str
    """Version that wrote it."""
    committed_ms: int
    add: list[DataFile]
    remove: list[str]
    """Paths."""
    changed: list[str]
    """Names that it wrote anew or dropped."""
    tables: list[str]
    """Names that exist after it, also those without rows and so without files."""
    summary: Summary
    """All of it."""
    ended: list[str] = []
    """Runs that this commit takes for dead: they cannot commit after it."""
    live: list[DataFile] | None = None
    """All files after it, in each sixteenth."""


class _Head(msgspec.Struct):
    format: int | None = None


def fold(files: Mapping[str, DataFile], manifests: Iterable[Manifest]) -> dict[str, DataFile]:
    """What is live after `manifests`, by path, if `files` is what is live before them."""
    live = dict(files)
    for manifest in manifests:
        if manifest.live is not None:
            live = {file.path: file for file in manifest.live}
            continue
        for path in manifest.remove:
            live.pop(path, None)
        live.update((file.path, file) for file in manifest.add)
    return live


def manifest_path(sequence: int) -> str:
    """Where the manifest of a commit is."""
    return f"{RUNS}/{sequence:08}{_JSON}"


def newest_sequence(storage: Storage) -> int:
    """The number of the newest commit, 0 where there is none."""
    # An empty one is not there yet (:meth:`Storage.put_new`).
    names = [file.path.removeprefix(f"{RUNS}/").removesuffix(_JSON) for file in storage.list(f"{RUNS}/") if file.bytes]
    return max((int(name) for name in names if name.isdecimal()), default=0)


def read_manifests(storage: Storage, sequences: Iterable[int]) -> Sequence[Manifest]:
    """Those of some commits.

    :raises WrongFormatError: another version of kquota wrote one.
    :raises DamagedFileError: one is not there.
    """
    return [_read(storage, manifest_path(sequence)) for sequence in sequences]


def _read(storage: Storage, path: str) -> Manifest:
    try:
        content = storage.read(path)
    except FileNotFoundError:
        raise DamagedFileError(storage.url, path, "ingest") from None
    try:
        return msgspec.json.decode(content, type=Manifest)
    except msgspec.DecodeError:
        raise WrongFormatError(storage.url, _format(content)) from None


def _format(content: bytes) -> int | None:
    try:
        return msgspec.json.decode(content, type=_Head).format
    except msgspec.DecodeError:
        return None
