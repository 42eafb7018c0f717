"""Many changes made on a store: all at once where it looks and changes in one, in batches where brokers do it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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

__all__ = ["BATCH_ENTITIES", "make_changes"]

BATCH_ENTITIES: Final = 1_000
"""As many as the client sends in one request: none of them is asked for while another may still fail."""


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
