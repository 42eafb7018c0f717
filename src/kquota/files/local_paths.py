"""Paths and URLs as they are given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from kquota.errors import InputError

__all__ = ["STORAGE_SCHEMES", "check_local", "local_path", "url_scheme"]

STORAGE_SCHEMES: Final = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfss": "abfss",
    "abfs": "abfss",
    "hdfs": "hdfs",
    "viewfs": "hdfs",
}
"""Schemes of URLs that the pipeline reads and writes, and those that mean the same."""

# Hadoop writes also `hdfs:/path`, and so does `pathlib` with what was `s3a://bucket/key`. One letter is a drive.
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")
_OF_THIS_MACHINE: Final = re.compile(r"file:(?://(?:localhost)?)?(?=/(?!/))", re.IGNORECASE)


def url_scheme(text: str) -> str | None:
    """The scheme of a URL in small letters; None for a path, and for a URL ``file:///path`` of this machine."""
    url = _URL.match(text)
    return None if url is None or _OF_THIS_MACHINE.match(text) is not None else url[1].lower()


def local_path(text: str) -> str:
    """The path that a text names: itself, or that of a URL ``file:///path`` (taken literally, as Hadoop does).

    :raises InputError: it is a URL of another scheme, such as ``s3a://bucket/key``, or of another host.
    """
    url = _URL.match(text)
    if url is None:
        return text
    if (here := _OF_THIS_MACHINE.match(text)) is not None:
        return text[here.end() :]
    raise InputError(
        f"{text}: {url[1]}: URLs are not served here: give a path, or file:///path, on a file system that this machine "
        "has mounted"
    )


def check_local(path: Path) -> None:
    """Refuse a path that was made of a URL, where it would name a folder such as ``s3a:``.

    :raises InputError: it was.
    """
    if local_path(str(path)) != str(path):
        raise InputError(f"{path} is a URL and no path: give the path alone")
