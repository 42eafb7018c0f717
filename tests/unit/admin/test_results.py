"""What came of resolving: values, and errors that say whose they are."""

from __future__ import annotations

import pytest

import kquota
from kquota.admin import Entry, ResolveClientQuotasResult, Value
from kquota.errors import ApiError, ApiFailedError, KafkaErrorCode, NotSupportedError
from kquota.quotas import ClientQuotaEntity, MeterKey

ALICE, ODD = ClientQuotaEntity({"user": "alice"}), ClientQuotaEntity({"user": "bob", "group": "g"})
VALUES = {"producer_byte_rate": Value(Entry(ALICE, 5.0, 3), MeterKey({"user": "alice"}))}
REFUSED = ApiError(KafkaErrorCode.INVALID_REQUEST, "Unhandled client quota entity type: group")
RESULT = ResolveClientQuotasResult({ALICE: VALUES, ODD: REFUSED})


def test_a_client_that_was_resolved_has_its_values_beside_one_that_was_not() -> None:
    assert RESULT.config()[ALICE] == VALUES
    assert list(RESULT.config()) == [ALICE, ODD]
    assert ODD in RESULT.config()


def test_a_client_that_was_not_is_named_by_the_error_that_asking_for_it_raises() -> None:
    """In every way to ask: as the README does, by default, one after the other, and all at once."""
    config = RESULT.config()
    for ask in (
        lambda: config[ODD],
        lambda: config.get(ODD, {}),
        lambda: list(config.items()),
        lambda: list(config.values()),
        RESULT.all,
    ):
        with pytest.raises(ApiFailedError, match="user=bob,group=g: Unhandled client quota entity type") as failed:
            ask()
        assert failed.value.error.code == KafkaErrorCode.INVALID_REQUEST


def test_the_error_is_that_of_its_code() -> None:
    unknown = ResolveClientQuotasResult({ALICE: ApiError(KafkaErrorCode.UNSUPPORTED_VERSION)})
    with pytest.raises(NotSupportedError, match="user=alice: it could not be resolved"):
        unknown.config()[ALICE]


def test_values_give_errors_as_values() -> None:
    assert RESULT.values() == {ALICE: VALUES, ODD: REFUSED}


def test_a_client_that_nobody_asked_about() -> None:
    with pytest.raises(KeyError):
        RESULT.config()[ClientQuotaEntity({"user": "carol"})]
    assert ClientQuotaEntity({"user": "carol"}) not in RESULT.config()


def test_all_is_quiet_where_all_were_resolved() -> None:
    ResolveClientQuotasResult({ALICE: VALUES}).all()


def test_the_types_have_names_where_the_kip_has_them() -> None:
    """``ClientQuotaEntity.USER`` and ``.CLIENT_ID``; ``IP`` came with KIP-612."""
    assert (ClientQuotaEntity.USER, ClientQuotaEntity.CLIENT_ID, ClientQuotaEntity.IP) == ("user", "client-id", "ip")
    assert (kquota.USER, kquota.CLIENT_ID, kquota.IP) == ("user", "client-id", "ip")
    assert ClientQuotaEntity({ClientQuotaEntity.USER: "alice"}) == ALICE
