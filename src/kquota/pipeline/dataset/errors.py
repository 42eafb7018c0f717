"""What can be wrong with a dataset. Each error carries what it is about; the message is made of that."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Literal

from kquota.errors import InputError, KquotaError

if TYPE_CHECKING:
    from kquota.pipeline.dataset.runs import Writer

__all__ = [
    "BusyError",
    "ConflictError",
    "DamagedFileError",
    "DatasetExistsError",
    "ForeignFilesError",
    "Found",
    "MissingTableError",
    "NotADatasetError",
    "NotSharedStorageError",
    "NotWritableError",
    "WrongFormatError",
]

Found = Literal["nothing", "a file", "other files", "an unfinished run"]
"""What is there in place of a dataset."""

_SHOWN = 3


class NotWritableError(InputError):
    """A dataset cannot be written to, and what the system says of that."""

    def __init__(self, url: str, reason: str) -> None:
        self.url, self.reason = url, reason
        super().__init__(f"{url} cannot be written to: {reason}")


class DatasetExistsError(InputError):
    """A new dataset was to be made where there is one."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(f"{url} is a dataset already")


class ForeignFilesError(InputError):
    """A dataset was to be made where there are files that kquota did not write. They were not touched."""

    def __init__(self, url: str, names: Collection[str]) -> None:
        self.url, self.names = url, tuple(names)
        super().__init__(f"{url} holds what kquota did not write ({_shown(names)}): nothing was touched")


class NotADatasetError(InputError):
    """There is no dataset that a run committed."""

    def __init__(self, url: str, found: Found) -> None:
        self.url, self.found = url, found
        super().__init__(f"{url} is no dataset: there is {found}")


class WrongFormatError(InputError):
    """A dataset of another version of kquota; `format` is its own, None where even that cannot be read."""

    def __init__(self, url: str, format: int | None) -> None:
        self.url, self.format = url, format
        super().__init__(f"{url} was written by another version of kquota (format {format}): analyse the logs again")


class MissingTableError(InputError):
    """A dataset lacks a table, or its quotas. `written_by` is the step that writes it."""

    def __init__(self, url: str, table: str, written_by: str) -> None:
        self.url, self.table, self.written_by = url, table, written_by
        super().__init__(f"{url} has no {table}, which the step {written_by} writes")


class DamagedFileError(InputError):
    """A file of a dataset is missing or cannot be read. `written_by` is the step that writes it anew."""

    def __init__(self, url: str, path: str, written_by: str) -> None:
        self.url, self.path, self.written_by = url, path, written_by
        super().__init__(f"{url}/{path} is missing or damaged; the step {written_by} writes it anew")


class ConflictError(KquotaError):
    """Another run changed what this one has read; nothing was committed. `by` are the steps that did."""

    def __init__(self, url: str, tables: Collection[str], by: Collection[str]) -> None:
        self.url, self.tables, self.by = url, tuple(tables), tuple(by)
        super().__init__(
            f"{url}: {_shown(tables)} was changed while this run read it (by {_shown(by)}): run it again; "
            "nothing of this run was kept"
        )


class BusyError(KquotaError):
    """A run that lives on this machine writes some of the same tables."""

    def __init__(self, url: str, tables: Collection[str], writer: Writer) -> None:
        self.url, self.tables, self.writer = url, tuple(sorted(tables)), writer
        super().__init__(
            f"{url}: {_shown(self.tables)} is being written by {writer}: try again when that run has ended"
        )


class NotSharedStorageError(KquotaError):
    """A file that a worker wrote does not come to where the driver reads it."""

    def __init__(self, url: str, path: str) -> None:
        self.url, self.path = url, path
        super().__init__(
            f"Spark's workers wrote {path} to {url}, and it is not there for this machine: the dataset has to be on a "
            "storage that this machine and all workers reach under the same name"
        )


def _shown(names: Collection[str]) -> str:
    shown = list(names)[:_SHOWN]
    return ", ".join(shown) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
