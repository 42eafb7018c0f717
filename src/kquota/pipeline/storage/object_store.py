"""Object stores: Amazon S3 and what speaks its protocol, Google Cloud Storage, Azure Data Lake Storage.

obstore (extras ``s3``, ``gs``, ``azure``) does the requests. Where an endpoint or a region is set in the driver's
environment, workers get those with the storage; keys never: each process finds its own, in the store's usual places.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kquota.pipeline.storage.errors import MissingPackageError, StorageFailedError, StorageRefusedError
from kquota.pipeline.storage.port import PARTIAL_S, FileInfo
from kquota.pipeline.storage.ranges import file_of_ranges, read_ahead

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["OBJECT_STORES", "ObjectStorage"]

OBJECT_STORES: Final = {"s3": "s3", "gs": "gs", "abfss": "azure"}
"""Their schemes, each with the extra of kquota that it needs."""

_CONNECT_S: Final = 5
_READ_S: Final = 60
"""So long a server may send nothing."""
_REQUEST_S: Final = 600
_RETRIES: Final = 5
_RETRY_S: Final = 60

_REFUSALS: Final = (
    (
        r"NoSuchBucket|bucket does not exist|ContainerNotFound",
        "there is no such bucket, or it is elsewhere: look at its name, and at the endpoint and region that are set",
    ),
    (
        r"InvalidAccessKeyId|UserNotFound|SignatureDoesNotMatch|AuthenticationFailed|(Invalid|Expired)Token|401 Unauth",
        "the keys are not accepted: look at {keys}",
    ),
    (r"RequestTimeTooSkewed", "this machine's clock is too far from the store's: set it"),
    (
        r"AccessDenied|AuthorizationFailure|AuthorizationPermissionMismatch|403 Forbidden",
        "access is denied: these keys have no permission for it",
    ),
    (
        r"PermanentRedirect|301 Moved|AuthorizationHeaderMalformed",
        "the bucket is in another region: set AWS_REGION to its own",
    ),
    (
        r"169\.254\.169\.254|metadata\.google|no credentials|get_credentials|Account must be specified",
        "no keys were found: {keys}",
    ),
)
"""What stores and obstore say, and what it means to people."""
_KEYS: Final = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the role of the machine",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or the account of the machine",
    "abfss": "AZURE_STORAGE_ACCOUNT_KEY, AZURE_CLIENT_ID with its secret, or the identity of the machine",
}
_FAILURES: Final = (
    (
        r"[Cc]onnection refused|dns error|tcp connect|error trying to connect|ConnectError|Connection reset",
        "it cannot be reached",
    ),
    (r"(?<!retry_)(?i:time[d ]*out)", "it does not answer in time"),
    (r"50\d |InternalError|SlowDown|ServiceUnavailable", "it fails"),
)
_QUERY: Final = re.compile(r"\?[^\s)\"']+")
"""Of a URL; it may hold a signature."""


@dataclass(frozen=True, slots=True)
class ObjectStorage:
    """Objects whose keys begin with a prefix. An object is seen whole or not at all, and replaced in one step."""

    url: str
    """``s3://bucket/prefix``, without a slash at its end."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Of the environment: where the store is, no secrets."""

    @classmethod
    def open(cls, url: str) -> ObjectStorage:
        """The storage of a URL of one of :data:`OBJECT_STORES`, as the environment says where that is.

        :raises MissingPackageError: obstore is not installed.
        """
        scheme = url.partition(":")[0]
        if find_spec("obstore") is None:
            raise MissingPackageError(url, "obstore", OBJECT_STORES[scheme])
        return cls(url.rstrip("/"), _options(scheme))

    @property
    def identity(self) -> str:
        """As :meth:`Storage.identity`: the URL, at its endpoint."""
        return f"{self.options.get('endpoint', '')} {self.url}"

    def list(self, prefix: str = "") -> list[FileInfo]:
        """As :meth:`Storage.list`. The empty objects that stand for folders are left out."""
        import obstore

        with self._errors():
            objects = obstore.list(self._client, prefix=prefix or None).collect()
            found = sorted(FileInfo(one["path"], one["size"]) for one in objects)
        if not found:
            self._check_no_object()
        # The path of an empty object that stands for a folder comes without the slash at its end.
        return [info for info in found if info.bytes or (info.path and self.has(info.path))]

    def _check_no_object(self) -> None:
        """:raises NotADirectoryError: the URL is that of an object."""
        folder, _, name = self.url.rpartition("/")
        is_bucket = folder.endswith("/")
        if not is_bucket and ObjectStorage(folder, self.options).has(name):
            raise NotADirectoryError(self.url)

    def has(self, path: str) -> bool:
        """Whether there is an object."""
        try:
            self.size(path)
        except FileNotFoundError:
            return False
        return True

    def size(self, path: str) -> int:
        """As :meth:`Storage.size`."""
        import obstore

        with self._errors(path):
            return obstore.head(self._client, path)["size"]

    def open_input(self, path: str) -> pa.NativeFile:
        """As :meth:`Storage.open_input`."""
        return file_of_ranges(partial(self.read_range, path), self.size(path))

    def read(self, path: str) -> bytes:
        """As :meth:`Storage.read`."""
        import obstore

        with self._errors(path):
            return obstore.get(self._client, path).bytes().to_bytes()

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """As :meth:`Storage.read_range`."""
        import obstore

        with self._errors(path):
            return obstore.get_range(self._client, path, start=start, length=length).to_bytes()

    def stream(self, path: str, start: int = 0, end: int | None = None, *, piece_bytes: int) -> Iterator[bytes]:
        """As :meth:`Storage.stream`."""
        size = self.size(path)
        end = size if end is None else min(end, size)
        return read_ahead(partial(self.read_range, path), start, end, piece_bytes=piece_bytes)

    def put(self, path: str, content: bytes | pa.Buffer, *, durable: bool = False) -> None:  # noqa: ARG002 (the port's)
        """As :meth:`Storage.put`; an object is durable when it is there."""
        import obstore

        for attempt in count(1):
            try:
                with self._errors(path):
                    # In one request: one that is not ended leaves nothing, unlike an upload in parts.
                    obstore.put(self._client, path, bytes(content), use_multipart=False)
                return
            except FileExistsError:  # 409 Conflict: another request changes something in this moment
                if attempt > _RETRIES:
                    raise

    def put_new(self, path: str, content: bytes) -> None:
        """As :meth:`Storage.put_new`, by a conditional put."""
        import obstore

        with self._errors(path):
            obstore.put(self._client, path, content, mode="create", use_multipart=False)

    def delete(self, paths: Iterable[str]) -> None:
        """As :meth:`Storage.delete`."""
        import obstore

        doomed = sorted(set(paths))
        if not doomed:
            return
        try:
            with self._errors():
                obstore.delete(self._client, doomed)
        except FileNotFoundError:  # not S3, which does not mind
            for path in doomed:
                with suppress(FileNotFoundError), self._errors(path):
                    obstore.delete(self._client, path)

    def remove_partial(self, older_than_s: float = PARTIAL_S) -> None:
        """As :meth:`Storage.remove_partial`: there is nothing partial."""

    def spark_url(self, path: str) -> None:
        """As :meth:`Storage.spark_url`: Spark would need packages and settings of its own."""

    @property
    def _client(self) -> ObjectStore:
        with self._errors():
            return _client(self.url, tuple(sorted(self.options.items())))

    @contextmanager
    def _errors(self, path: str = "") -> Iterator[None]:
        """What obstore raises as what a storage raises."""
        from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError

        url = f"{self.url}/{path}" if path else self.url
        try:
            yield
        except AlreadyExistsError:
            raise FileExistsError(errno.EEXIST, "it is there already", url) from None
        except (BaseError, ValueError) as error:  # ValueError: of credential providers
            text = str(error)
            scheme = self.url.partition(":")[0]
            for pattern, reason in _REFUSALS:
                if re.search(pattern, text):
                    raise StorageRefusedError(url, reason.format(keys=_KEYS[scheme])) from error
            if isinstance(error, NotFoundError):
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", url) from None
            if isinstance(error, ValueError):
                raise
            where = self.options.get("endpoint", "the store")
            for pattern, reason in _FAILURES:
                if re.search(pattern, text):
                    raise StorageFailedError(url, f"{where}: {reason}, also when it is asked again") from error
            raise StorageFailedError(url, _QUERY.sub("", text.splitlines()[0])) from error


def _options(scheme: str) -> dict[str, str]:
    """Where the store is: what the environment says, for workers that may have another one."""
    environment = os.environ
    match scheme:
        case "s3":
            endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
            region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or _profile_region()
            return ({"endpoint": endpoint} if endpoint else {}) | {"region": region or "us-east-1"}
        case "gs":
            endpoint = environment.get("STORAGE_EMULATOR_HOST")
            return {"endpoint": endpoint if "://" in endpoint else f"http://{endpoint}"} if endpoint else {}
        case _:
            endpoint = environment.get("AZURE_STORAGE_ENDPOINT") or environment.get("AZURE_ENDPOINT")
            return {"endpoint": endpoint} if endpoint else {}


def _profile_region() -> str | None:
    if find_spec("boto3") is None:
        return None
    import boto3

    region: str | None = boto3.session.Session().region_name
    return region


@lru_cache(maxsize=64)
def _client(url: str, options: tuple[tuple[str, str], ...]) -> ObjectStore:
    """One for each process: connections do not survive a fork."""
    from obstore.store import from_url

    config: dict[str, Any] = dict(options)
    scheme = url.partition(":")[0]
    if scheme == "gs" and "endpoint" in config:
        config = {"base_url": config["endpoint"], "skip_signature": True}
    is_plain = str(config.get("endpoint", config.get("base_url", ""))).startswith("http://")
    provider: Any = None
    if scheme == "s3" and not {"AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE"} & os.environ.keys() and find_spec("boto3"):
        from obstore.auth.boto3 import Boto3CredentialProvider

        provider = Boto3CredentialProvider()
    settings: dict[str, Any] = {
        "config": config,
        "client_options": {
            "allow_http": is_plain,
            "connect_timeout": timedelta(seconds=_CONNECT_S),
            "read_timeout": timedelta(seconds=_READ_S),
            "timeout": timedelta(seconds=_REQUEST_S),
        },
        "retry_config": {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)},
        "credential_provider": provider,
    }
    store: ObjectStore = from_url(url, **settings)
    return store
