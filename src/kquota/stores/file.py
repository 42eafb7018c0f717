"""Quotas in a quota file: to be read, and followed while somebody edits it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from kquota.clock import Clock
from kquota.errors import ApiError, InputError, KafkaErrorCode, KquotaError
from kquota.files import read_quota_file
from kquota.policy import is_plan
from kquota.quotas import (
    KAFKA,
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    QuotaIndex,
    QuotaModel,
    QuotaSnapshot,
)
from kquota.stores.port import QuotaStore
from kquota.stores.watch import QuotaWatch, Watches

if TYPE_CHECKING:
    from kquota.stores.host_names import Hosts

__all__ = ["FileStore"]

_LOOK_EVERY_MS: Final = 250

_Stamp = tuple[int, int, int, int]


class FileStore(QuotaStore):
    """A :class:`~kquota.stores.QuotaStore` that nobody can alter, of any file that :func:`read_quota_file` reads.

    A file that cannot be used leaves the quotas as they were before. One that is written in place may be found half
    done, and be a quota file all the same: so a file counts as soon as it is the same at two looks. One that is put in
    the place of another by renaming is never half done.
    """

    identity: Final = None
    host_names: Final = None
    """Nobody alters it, so no host name is looked up."""

    def __init__(
        self,
        path: Path,
        *,
        model: QuotaModel = KAFKA,
        clock: Clock | None = None,
        warn: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """Read the file.

        :param warn: called with what the file says and Kafka has no quota for.
        :raises InputError: it cannot be read, or is no quota file; a QuotaFileError names all that is wrong with it.
        """
        self.path = path
        self.model = model
        self._clock = clock
        self._warn = warn
        self._watches = Watches()
        self._lock = Lock()
        self._content: bytes | None = None
        self._error: KquotaError | None = None
        self._left_out: tuple[str, ...] = ()
        self._seen = self._stamp()
        self._read: _Stamp | None = None  # it may be half written now, and is read once more
        self._index = QuotaIndex({})
        self._take(self._bytes())
        if self._error is not None:
            raise self._error

    def describe(self, quota_filter: ClientQuotaFilter) -> Mapping[ClientQuotaEntity, Mapping[str, float]] | ApiError:
        """As :meth:`QuotaStore.describe`; where the file cannot be used now, what was in it before."""
        with self._lock:
            with suppress(KquotaError):  # whoever watches the file sees that
                self._look()
            index = self._index
        return index.describe(quota_filter, model=self.model)

    def alter(
        self,
        alterations: Iterable[ClientQuotaAlteration],
        *,
        validate_only: bool = False,  # noqa: ARG002 - what is validated would be refused, too
        principal: str = "",  # noqa: ARG002
        hosts: Hosts | None = None,  # noqa: ARG002
        wait_ms: int | None = None,  # noqa: ARG002
    ) -> Mapping[ClientQuotaEntity, ApiError | None]:
        """Refuse each with ``POLICY_VIOLATION``: trying again does not help, and nothing is wrong with the request, as
        ``INVALID_REQUEST`` would say.
        """
        refused = ApiError(
            KafkaErrorCode.POLICY_VIOLATION, f"These quotas are those of the file {self.path}, and are changed there."
        )
        return {one.entity: refused for one in alterations}

    def index(self) -> QuotaIndex:
        """All quotas as they were at the last look: whoever serves the file watches it, too."""
        return self._index

    def maintain(self) -> None:
        """Nothing is to be done."""

    def watch(self) -> QuotaWatch:
        """As :meth:`Watchable.watch`: a change is seen within half a second."""
        return self._watches.add(QuotaWatch(self._snapshot, every_ms=_LOOK_EVERY_MS, clock=self._clock))

    def close(self) -> None:
        """End all watches. Safe to call twice."""
        self._watches.close()

    def _snapshot(self) -> QuotaSnapshot:
        with self._lock:
            self._look()
            return self._index.snapshot

    def _look(self) -> None:
        """Read the file where it changed.

        :raises InputError: what is in it now cannot be used.
        """
        stamp = self._stamp()
        if stamp != self._read:
            if stamp == self._seen:
                self._take(self._bytes())
                if self._stamp() == stamp:
                    self._read = stamp
            self._seen = stamp
        if self._error is not None:
            raise self._error

    def _take(self, content: bytes) -> None:
        if content == self._content:
            return
        try:
            if is_plan(content):
                raise InputError(f"{self.path}: this is a plan and no quota file; kquota apply carries it out")
            file = read_quota_file(content, name=str(self.path), model=self.model)
        except InputError as error:
            self._content, self._error = content, error
            return
        self._content, self._error = content, None
        self._index = QuotaIndex(file.snapshot())
        left_out = tuple(one.to_text(str(self.path)) for one in file.left_out)
        for text in left_out if left_out != self._left_out else ():
            self._warn(text)
        self._left_out = left_out

    def _stamp(self) -> _Stamp:
        """What changes with the file: as a rule its time, and its number where another one takes its place."""
        try:
            found = self.path.stat()
        except OSError as error:
            raise self._unreadable(error) from None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def _bytes(self) -> bytes:
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: OSError) -> InputError:
        return InputError(f"{self.path}: cannot read the quotas: {error.strerror}")
