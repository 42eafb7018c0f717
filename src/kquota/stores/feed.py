"""The quotas that a store has, brought to those who enforce them as they change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Condition, Thread
from typing import Final, Self, TypeAlias

from kquota.clock import Clock, SystemClock
from kquota.errors import KquotaError, RequestTimeoutError, RetriableError, StoreError
from kquota.metering.engine import Change
from kquota.quotas import KAFKA, QuotaChange, QuotaModel, QuotaSnapshot
from kquota.stores.port import Watchable
from kquota.stores.watch import Look

__all__ = ["Apply", "Change", "QuotaFeed", "quota_changes"]

Apply: TypeAlias = Callable[[list[Change]], object]

STALE_AFTER_MS: Final = 10_000
_CLOSE_S: Final = 1.0
_MOST_NAMED: Final = 20


def quota_changes(before: QuotaSnapshot, after: QuotaSnapshot, *, model: QuotaModel = KAFKA) -> list[Change]:
    """What leads from one state to another, sorted by entity and key; without what `model` does not have."""
    return _known(_difference(before, after), model)


class QuotaFeed:
    """Follows a store in a thread of its own, and gives what changes to those who enforce it. A context manager.

        with open_store("sqlite:///quotas.db") as store, QuotaFeed(store) as feed:
            feed.drive(apply)

    While the store cannot be read the last quotas stay in force; when it can be again, what differs is applied. Keys
    and entity types that Kafka does not have are left aside: whoever enforces quotas has no meter for them.
    """

    def __init__(
        self,
        store: Watchable,
        *,
        model: QuotaModel = KAFKA,
        clock: Clock | None = None,
        stale_after_ms: float = STALE_AFTER_MS,
        warn: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """Take the store, which stays the caller's to close, after the feed.

        :param model: which keys there are on which entity types.
        :param stale_after_ms: from which age on the quotas are stale.
        :param warn: called in the thread of the feed when the store fails and when it can be read again, and once for
            each kind of quota that is left aside.
        :raises StoreError: the store cannot be followed.
        """
        self._model = model
        self._clock = clock or SystemClock()
        self._stale_after_ms = stale_after_ms
        self._warn = warn
        self._watch = store.watch()
        self._thread: Thread | None = None
        # Of all below. Who applies changes is called with it, so that nobody gets them twice or in another order.
        self._state = Condition()
        self._driven: list[_Driven] = []
        self._quotas: QuotaSnapshot | None = None
        self._begun_ms = -1.0
        self.last_error: KquotaError | None = None
        """Why the last look failed; None where it did not."""
        self.failing_since_ms: float | None = None
        """When the first of the looks began that failed in a row, on the clock that never goes back."""
        self.looks = 0
        """How many looks there were."""
        self.changes = 0
        """How many values were set or removed since the start, those of the start included, and not left aside."""
        self.left_aside = 0
        """How many of the last quotas have a key or an entity type that Kafka does not have."""
        # Of the thread alone.
        self._reasons: set[str] = set()
        self._named: set[tuple[str, frozenset[str]]] = set()

    def start(self, timeout_ms: float = 10_000) -> Self:
        """Begin, and wait for the first quotas; they are with those who were to be driven when this returns.

        What may come out otherwise the next time, such as brokers that cannot be reached, is tried until the time is
        over.

        :raises KquotaError: the store cannot be read; the feed is closed.
        """
        self._thread = Thread(target=self._run, name="quota-feed", daemon=True)
        self._thread.start()
        try:
            self._wait_for_the_first(timeout_ms)
        except BaseException:
            self.close()
            raise
        return self

    def _wait_for_the_first(self, timeout_ms: float) -> None:
        until_ms = self._clock.monotonic_ms() + timeout_ms
        with self._state:
            while self._quotas is None:
                error = self.last_error
                if error is not None and not isinstance(error, RetriableError):
                    raise error
                left_ms = until_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    raise error or RequestTimeoutError(f"no quotas could be read within {timeout_ms:.0f} ms")
                self._state.wait(left_ms / 1000)

    def drive(self, apply: Apply) -> None:
        """Give all quotas to `apply`, at once where they are known, and from then on what changes.

        `apply` is called with one list after the other, never with two at a time: now in this thread, later in that of
        the feed. It must not call the feed. Where it raises, it is given the same again with the next look, beside what
        changed since.
        """
        driven = _Driven(apply)
        with self._state:
            self._driven.append(driven)
            if self._quotas is not None:
                self._bring(driven, self._quotas, None)

    def look_now(self) -> None:
        """Do not wait with the next look: something was just changed."""
        self._watch.look_now()

    def catch_up(self, timeout_ms: float) -> bool:
        """Look now, and wait until those who are driven have the quotas that the store has now. Blocks its thread.

        :returns: whether they have them; not, where the time is over before, or the store cannot be read.
        """
        since_ms = self._clock.monotonic_ms()
        self._watch.look_now()
        with self._state:
            while self._begun_ms < since_ms:
                left_ms = since_ms + timeout_ms - self._clock.monotonic_ms()
                if left_ms <= 0 or self._watch.is_closed:
                    return False
                self._state.wait(left_ms / 1000)
        return True

    def close(self) -> None:
        """End. Nothing is applied after this; a look that is under way is not waited for long. Safe to call twice."""
        self._watch.close()
        with self._state:
            self._driven = []
            self._state.notify_all()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    @property
    def quotas(self) -> QuotaSnapshot:
        """The last quotas, also those that are left aside."""
        return self._quotas or {}

    def age_ms(self, now_ms: float | None = None) -> float:
        """How old the last quotas are: since when the store may have others. Infinite where there are none.

        :param now_ms: on the clock that never goes back.
        """
        if self._quotas is None:
            return float("inf")
        return max(0.0, (self._clock.monotonic_ms() if now_ms is None else now_ms) - self._begun_ms)

    def is_stale(self, now_ms: float | None = None) -> bool:
        """Whether the last quotas are older than they should be."""
        return self.age_ms(now_ms) > self._stale_after_ms

    def _run(self) -> None:
        for look in self._watch:
            if isinstance(look.seen, KquotaError):
                self._failed(look.seen, look.begun_ms)
            else:
                self._saw(look.seen, look)
        with self._state:
            self.last_error = self.last_error or StoreError(
                "the quotas are not followed any more: the feed or its store was closed"
            )
            self._state.notify_all()

    def _failed(self, error: KquotaError, begun_ms: float) -> None:
        with self._state:
            self.last_error = error
            if self.failing_since_ms is None:
                self.failing_since_ms = begun_ms
            self.looks += 1
            if self._quotas is not None:
                self._bring_all(self._quotas, None)
            self._state.notify_all()
        text = str(error)
        if self._quotas is not None and text not in self._reasons and len(self._reasons) < _MOST_NAMED:
            self._reasons.add(text)
            self._warn(f"the quotas cannot be read, the last ones stay in force: {text}")

    def _saw(self, quotas: QuotaSnapshot, look: Look) -> None:
        # Only this thread writes what is read here; what takes long is done before anybody has to wait for it.
        known = self._quotas
        changes: list[Change] | None = None
        left_aside: list[QuotaChange] = []
        if quotas is not known:
            difference = _difference(known or {}, quotas)
            changes = _known(difference, self._model)
            if len(changes) < len(difference):
                left_aside = [one for one in difference if not _is_known(one, self._model)]
        with self._state:
            self.failing_since_ms, self.last_error = None, None
            self._quotas, self._begun_ms = quotas, look.begun_ms
            self.looks += 1
            self.changes += len(changes or ())
            self.left_aside += sum((one.before is None) - (one.after is None) for one in left_aside)
            self._bring_all(quotas, None if changes is None else (known, changes))
            self._state.notify_all()
        if self._reasons:
            self._reasons.clear()
            self._warn("the quotas can be read again")
        self._name(left_aside)

    def _bring_all(self, quotas: QuotaSnapshot, step: _Step | None) -> None:
        for driven in self._driven:
            self._bring(driven, quotas, step)

    def _bring(self, driven: _Driven, quotas: QuotaSnapshot, step: _Step | None) -> None:
        """Bring one of those who are driven from the quotas that it has to these."""
        if driven.quotas is quotas:
            return
        if step is not None and driven.quotas is step[0]:
            changes = step[1]
        else:
            changes = quota_changes(driven.quotas or {}, quotas, model=self._model)
        try:
            if changes:
                driven.apply(changes)
        except Exception as error:  # noqa: BLE001 - the others are to have their quotas
            if not driven.is_failing:
                self._warn(f"quotas could not be applied, and will be tried again: {error!r}")
            driven.is_failing = True
        else:
            driven.quotas, driven.is_failing = quotas, False

    def _name(self, left_aside: Iterable[QuotaChange]) -> None:
        for one in left_aside:
            kind = one.key, frozenset(one.entity.entries)
            if kind not in self._named and len(self._named) < _MOST_NAMED:
                self._named.add(kind)
                self._warn(
                    f"{one.key} of {one.entity.to_text()} is left aside, and so are others of its kind: not Kafka's"
                )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()


_Step: TypeAlias = tuple[QuotaSnapshot | None, list[Change]]
"""Quotas, and the changes that lead from them to the next."""


class _Driven:
    """Who is given changes."""

    __slots__ = ("apply", "is_failing", "quotas")

    def __init__(self, apply: Apply) -> None:
        self.apply = apply
        self.quotas: QuotaSnapshot | None = None
        self.is_failing = False


def _difference(before: QuotaSnapshot, after: QuotaSnapshot) -> tuple[QuotaChange, ...]:
    # Only who follows a store loads what reads files, too.
    from kquota.policy import difference  # noqa: PLC0415

    return difference(before, after, prune=True)


def _is_known(change: QuotaChange, model: QuotaModel) -> bool:
    keys = model.keys_for(change.entity.entries)
    return keys is not None and change.key in keys


def _known(changes: Iterable[QuotaChange], model: QuotaModel) -> list[Change]:
    return [(one.key, one.entity, one.after) for one in changes if _is_known(one, model)]
