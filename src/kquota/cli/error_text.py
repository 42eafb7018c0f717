"""What the command line says of an error: flags where the library names arguments, and what to run."""

import re
from collections.abc import Mapping
from typing import Final

from kquota.errors import KquotaError
from kquota.pipeline.dataset.errors import (
    BusyError,
    DamagedFileError,
    DatasetExistsError,
    ForeignFilesError,
    MissingTableError,
    NotADatasetError,
    NotWritableError,
    WrongFormatError,
)

__all__ = ["error_text"]

FLAGS: Final[Mapping[str, str]] = {
    name: f"--{name.replace('_', '-')}"
    for name in (
        "advertise",
        "broker_label",
        "callback",
        "command_config",
        "insecure",
        "keep_requests",
        "listen",
        "listener_config",
        "max_rejected",
        "metrics",
        "metrics_mapping",
        "node_ports",
        "timezone",
    )
} | {"broker_ids": "--broker", "replica_labels": "--replica-label"}
"""By argument of the library, as its errors name it between backticks."""

_ARGUMENT: Final = re.compile(f"`({'|'.join(FLAGS)})`")


def error_text(error: KquotaError) -> str:
    """The error with flags for arguments, and with what is to be given or run."""
    text = _ARGUMENT.sub(lambda argument: FLAGS[argument[1]], str(error))
    advice = _advice(error)
    return f"{text}; {advice}" if advice else text


def _advice(error: KquotaError) -> str:
    """What is to be given or run; empty where the error says it."""
    match error:
        case DatasetExistsError():
            return "give --overwrite to replace it, or another --out"
        case ForeignFilesError() | NotWritableError() | BusyError():
            return "give another --out"
        case WrongFormatError():
            return "give another --out for that, or delete this one first"
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
