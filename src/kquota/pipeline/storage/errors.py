"""What can be wrong with a storage."""

from __future__ import annotations

from kquota.errors import InputError, KquotaError

__all__ = ["MissingPackageError", "StorageFailedError", "StorageRefusedError", "UnsupportedStorageError"]

_SERVED = (
    "a path, file:///path, s3://bucket/path (or s3a://), gs://bucket/path, hdfs://host:port/path or "
    "abfss://container@account.dfs.core.windows.net/path"
)


class UnsupportedStorageError(InputError):
    """A URL that names no storage which kquota can use."""

    def __init__(self, url: str, reason: str = "URLs of this kind are not served") -> None:
        self.url = url
        super().__init__(f"{url}: {reason}: give {_SERVED}")


class MissingPackageError(KquotaError):
    """The package that a kind of URL needs is not installed; `extra` is that of kquota which brings it."""

    def __init__(self, url: str, package: str, extra: str) -> None:
        self.url, self.package, self.extra = url, package, extra
        super().__init__(
            f"{url}: this needs the package {package}: pip install 'kquota[{extra}]', also for Spark's workers"
        )


class StorageRefusedError(InputError):
    """The storage answered that it will not: no such bucket, wrong keys, no permission, a wrong clock."""

    def __init__(self, url: str, reason: str) -> None:
        self.url, self.reason = url, reason
        super().__init__(f"{url}: {reason}")


class StorageFailedError(KquotaError):
    """The storage could not be reached, or failed, also when it was asked again."""

    def __init__(self, url: str, reason: str) -> None:
        self.url, self.reason = url, reason
        super().__init__(f"{url}: {reason}")
