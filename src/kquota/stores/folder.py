"""Quotas over time in a folder: a quota file for each time at which they changed, called by that time."""

from __future__ import annotations

from pathlib import Path

from kquota.errors import InputError
from kquota.files import QuotaTimeline, timestamp_name, write_yaml

__all__ = ["read_quota_folder", "write_quota_folder"]


def read_quota_folder(path: Path) -> QuotaTimeline:
    """What is in the folder; hidden files are left alone.

    :raises InputError: it cannot be read, or something in it is no quota file called by a time.
    """
    files: dict[str, bytes] = {}
    try:
        for file in path.iterdir():
            if not file.name.startswith("."):
                files[file.name] = file.read_bytes() if file.is_file() else b""
    except OSError as error:
        raise InputError(f"{error.filename}: cannot read the quotas: {error.strerror}") from None
    return QuotaTimeline.of_files(files, folder=str(path))


def write_quota_folder(path: Path, quotas: QuotaTimeline) -> None:
    """Write each period that has a beginning; reading the folder gives them back."""
    path.mkdir()
    for valid_from_ms, file in quotas.periods:
        if valid_from_ms is not None:
            (path / f"{timestamp_name(valid_from_ms)}.yaml").write_text(write_yaml(file), encoding="utf-8")
