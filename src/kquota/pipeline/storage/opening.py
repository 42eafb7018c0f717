"""From URLs to storages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from kquota.errors import InputError
from kquota.files.local_paths import STORAGE_SCHEMES, check_local, local_path, url_scheme
from kquota.pipeline.storage.errors import UnsupportedStorageError
from kquota.pipeline.storage.local import LocalStorage
from kquota.pipeline.storage.object_store import OBJECT_STORES, ObjectStorage
from kquota.pipeline.storage.port import Storage

__all__ = ["open_storage"]

_OBJECTS: Final = re.compile(r"(?P<scheme>[a-z0-9]+)://(?P<bucket>[^/]+)(?P<prefix>(?:/[^/]+)*)/*")


def open_storage(url: str | Path) -> Storage:
    """The storage of a path, or of a URL.

    :raises UnsupportedStorageError: it is a URL of another scheme, of another host, or is not complete.
    :raises MissingPackageError: the package for it is not installed.
    """
    text = str(url)
    scheme = url_scheme(text)
    if scheme is not None and not isinstance(url, Path):
        name = STORAGE_SCHEMES.get(scheme)
        if name in OBJECT_STORES:
            complete = _OBJECTS.fullmatch(f"{name}{text[len(scheme) :]}")
            if complete is None:
                raise UnsupportedStorageError(text, "this names no bucket and path")
            return ObjectStorage.open(complete[0])
        if name == "hdfs":
            from kquota.pipeline.storage.hdfs import HdfsStorage

            return HdfsStorage.open(text)
    try:
        if isinstance(url, Path):
            check_local(url)
        path = local_path(text)
    except InputError:
        raise UnsupportedStorageError(text) from None
    return LocalStorage(str(Path(path).absolute()))
