"""What to do about an error of a dataset, in the words of the command line."""

from kquota.errors import KquotaError
from kquota.pipeline.dataset.errors import (
    BusyError,
    DamagedFileError,
    DatasetExistsError,
    ForeignFilesError,
    MissingTableError,
    NotADatasetError,
    NotWritableError,
)

__all__ = ["advice"]


def advice(error: KquotaError) -> str:
    """What is to be given or run; empty where the error says it."""
    match error:
        case DatasetExistsError():
            return "give --overwrite to replace it, or another --out"
        case ForeignFilesError() | NotWritableError() | BusyError():
            return "give another --out"
        case NotADatasetError(found="an unfinished run"):
            return "a run that wrote to it has not come to its end; run that again"
        case NotADatasetError():
            return "`kquota analyze --out` or `kquota pipeline ingest --out` writes one"
        case MissingTableError(written_by="ingest") | DamagedFileError(written_by="ingest"):
            return "run `kquota pipeline ingest` or `kquota analyze` again"
        case MissingTableError() | DamagedFileError():
            return f"run `kquota pipeline {error.written_by} --dataset {error.url}`"
        case _:
            return ""
