"""Many changes at once: batches, how far they are, and what is said when a cluster stops answering midway."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Self

import pytest

from kquota.errors import (
    ApiError,
    ConnectionFailedError,
    KafkaErrorCode,
    KquotaError,
    MalformedMessageError,
    NotAuthorizedError,
    StoreError,
)
from kquota.policy import difference
from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter
from kquota.stores import open_store
from kquota.stores.changes import BATCH_ENTITIES, make_changes
from kquota.stores.local import LocalStore
from tests.kit.store_contract import everything

KEY = "producer_byte_rate"
WANTED = {ClientQuotaEntity({"user": f"user-{n:05}"}): {KEY: float(n + 1)} for n in range(2 * BATCH_ENTITIES + 1)}
CHANGES = difference({}, WANTED)

Results = Mapping[ClientQuotaEntity, ApiError | None]


class _Cluster:
    """Brokers: they only alter; `meddle` may raise, or answer something else than the store behind them."""

    identity = None

    def __init__(self, store: LocalStore, meddle: Callable[[int, Results], Results]) -> None:
        self.store = store
        self.meddle = meddle
        self.sizes: list[int] = []

    def describe(self, quota_filter: ClientQuotaFilter) -> Mapping[ClientQuotaEntity, Mapping[str, float]] | ApiError:
        return self.store.describe(quota_filter)

    def alter(
        self, alterations: Iterable[ClientQuotaAlteration], *, validate_only: bool = False, principal: str = ""
    ) -> Results:
        asked = list(alterations)
        self.sizes.append(len(asked))
        answer = self.meddle(len(self.sizes), dict.fromkeys([one.entity for one in asked]))
        self.store.alter(asked, validate_only=validate_only, principal=principal)
        return answer

    def close(self) -> None:
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def raising(number: int, error: KquotaError) -> Callable[[int, Results], Results]:
    """The batch of that number ends so, and is not done."""

    def meddle(batch: int, answer: Results) -> Results:
        if batch == number:
            raise error
        return answer

    return meddle


def made(meddle: Callable[[int, Results], Results]) -> tuple[_Cluster, Results, list[tuple[int, int]]]:
    cluster = _Cluster(open_store("memory:"), meddle)
    reports: list[tuple[int, int]] = []
    results = make_changes(cluster, CHANGES, {}, principal="p", report=lambda done, of: reports.append((done, of)))
    return cluster, results, reports


def codes(results: Results) -> list[int | None]:
    """Of each batch the one code that all of it has."""
    each = [None if error is None else error.code for error in results.values()]
    found = []
    for start in range(0, len(each), BATCH_ENTITIES):
        [code] = set(each[start : start + BATCH_ENTITIES])
        found.append(code)
    return found


def test_brokers_are_asked_in_batches_and_it_is_told_how_far_it_is() -> None:
    cluster, results, reports = made(lambda _, answer: answer)
    assert cluster.sizes == [BATCH_ENTITIES, BATCH_ENTITIES, 1]
    assert reports == [(BATCH_ENTITIES, len(WANTED)), (2 * BATCH_ENTITIES, len(WANTED))]
    assert list(results.items()) == [(entity, None) for entity in WANTED]
    assert everything(cluster) == WANTED


def test_a_store_that_compares_and_sets_takes_all_in_one_commit() -> None:
    """An apply is one entry of its history; who moved is left alone."""
    with open_store("memory:", max_changes=None) as store:
        first = CHANGES[0]
        store.alter([ClientQuotaAlteration(first.entity, [ClientQuotaAlteration.Op(KEY, 77.0)])])
        results = make_changes(store, CHANGES, {}, principal="User:ops")
        assert [entity for entity, error in results.items() if error is not None] == [first.entity]
        assert everything(store) == {**WANTED, first.entity: {KEY: 77.0}}
        assert [(one.principal, len(one.changes)) for one in store.history(since=1)] == [("User:ops", len(WANTED) - 1)]


def test_what_is_refused_keeps_nothing_from_being_done() -> None:
    refusal = ApiError(KafkaErrorCode.INVALID_REQUEST, "no")
    _, results, _ = made(lambda batch, answer: dict.fromkeys(answer, refusal) if batch == 1 else answer)
    assert codes(results) == [KafkaErrorCode.INVALID_REQUEST, None, None]


@pytest.mark.parametrize(
    "error, code",
    [
        (ConnectionFailedError("gone"), KafkaErrorCode.NETWORK_EXCEPTION),
        (NotAuthorizedError("not you"), KafkaErrorCode.NETWORK_EXCEPTION),
        (MalformedMessageError("what?"), KafkaErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_after_a_batch_that_fails_nothing_more_is_sent(error: KquotaError, code: int) -> None:
    """Of what was sent it is unknown, the rest was not sent, and what was done before counts."""
    cluster, results, _ = made(raising(2, error))
    assert cluster.sizes == [BATCH_ENTITIES, BATCH_ENTITIES]
    assert codes(results) == [None, code, KafkaErrorCode.NETWORK_EXCEPTION]
    assert list(results) == list(WANTED)
    assert [entity for entity, failure in results.items() if failure is None] == list(everything(cluster))
    last = list(results.values())[-1]
    assert last is not None
    assert (last.message or "").startswith("not sent: ")


def test_after_a_batch_without_an_answer_nothing_more_is_sent() -> None:
    unknown = ApiError(KafkaErrorCode.REQUEST_TIMED_OUT, "no answer")
    cluster, results, _ = made(lambda batch, answer: dict.fromkeys(answer, unknown) if batch == 2 else answer)
    assert cluster.sizes == [BATCH_ENTITIES, BATCH_ENTITIES]
    assert codes(results) == [None, KafkaErrorCode.REQUEST_TIMED_OUT, KafkaErrorCode.NETWORK_EXCEPTION]


@pytest.mark.parametrize("error", [ConnectionFailedError("gone"), StoreError("locked")])
def test_where_nothing_was_done_the_error_says_so(error: KquotaError) -> None:
    with pytest.raises(type(error)):
        made(raising(1, error))
