"""Many changes made on a store: all at once where it looks and changes in one, in batches where brokers do it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kquota.errors import (
    ApiError,
    ConnectionFailedError,
    KafkaErrorCode,
    KquotaError,
    NotAuthorizedError,
    NotSupportedError,
)
from kquota.policy import alterations
from kquota.quotas import ClientQuotaEntity, QuotaChange, QuotaSnapshot
from kquota.stores.port import ComparesAndSets, QuotaStore

__all__ = ["BATCH_ENTITIES", "Outcome", "local_principal", "make_changes", "to_outcomes"]

BATCH_ENTITIES: Final = 1_000
"""As many as the client sends in one request: none of them is asked for while another may still fail."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One entity: what was to change, and what came of it."""

    entity: ClientQuotaEntity
    changes: tuple[QuotaChange, ...]
    error: ApiError | None
    dry_run: bool

    @property
    def status(self) -> str:
        """One word: done, unchanged (there was nothing to do, or it is a dry run), failed or unknown."""
        if self.error is None:
            return "unchanged" if self.dry_run or not self.changes else "done"
        return "unknown" if self.error.is_unknown else "failed"


def to_outcomes(
    entities: Iterable[ClientQuotaEntity],
    changes: Iterable[QuotaChange],
    results: Mapping[ClientQuotaEntity, ApiError | None],
    *,
    dry_run: bool,
) -> list[Outcome]:
    """What became of `entities`, in their order, and of others that were changed.

    :param results: by entity that was sent; the others had no change to make.
    """
    by_entity: dict[ClientQuotaEntity, list[QuotaChange]] = {entity: [] for entity in (*entities, *results)}
    for change in changes:
        by_entity[change.entity].append(change)
    return [Outcome(entity, tuple(own), results.get(entity), dry_run) for entity, own in by_entity.items()]


def local_principal() -> str:
    """The user of this process, for the history of a store: there is no connection that would say who asks."""
    from getpass import getuser  # noqa: PLC0415 - only who changes something loads it

    try:
        return f"local:{getuser()}".encode(errors="replace").decode()
    except (OSError, KeyError, ImportError):
        return "local:"


def make_changes(
    store: QuotaStore,
    changes: Iterable[QuotaChange],
    expected: QuotaSnapshot,
    *,
    principal: str,
    report: Callable[[int, int], None] = lambda _done, _of: None,
) -> Mapping[ClientQuotaEntity, ApiError | None]:
    """Make `changes`, those of one entity together; one result for each entity.

    What can look and change in one changes no entity whose values are not as `expected`. Brokers cannot: they are
    asked in batches. Where one has no answer, it is unknown what became of it, and the rest is not sent.

    :param report: called after each batch but the last, with how many entities are through, and of how many.
    :raises KquotaError: nothing was done, or there was no answer that could be read.
    """
    asked = alterations(changes)
    if isinstance(store, ComparesAndSets):
        return store.compare_and_alter(asked, expected, principal=principal)
    results: dict[ClientQuotaEntity, ApiError | None] = {}
    reason = ""
    for start in range(0, len(asked), BATCH_ENTITIES):
        batch = asked[start : start + BATCH_ENTITIES]
        try:
            results.update(store.alter(batch, principal=principal))
        except KquotaError as error:
            if not results:
                raise
            if isinstance(error, ConnectionFailedError | NotAuthorizedError | NotSupportedError):
                reason = f"not sent: {error}"
                break
            unknown = ApiError(KafkaErrorCode.REQUEST_TIMED_OUT, f"{error}; it may have been done or not")
            results.update({one.entity: unknown for one in batch})
        if any(error is not None and error.is_unknown for error in results.values()):
            reason = "not sent: there was no answer to what was sent before it"
            break
        if len(results) < len(asked):
            report(len(results), len(asked))
    unsent = ApiError(KafkaErrorCode.NETWORK_EXCEPTION, reason)
    return {one.entity: results.get(one.entity, unsent) for one in asked}
