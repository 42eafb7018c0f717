"""What nobody should tell the engine, and what it answers: the table of ``docs/metering.md``, row by row.

Where Kafka's classes have an answer, it is among the written traces ("odd ...").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import pytest

from kquota.config import BrokerConfig
from kquota.errors import IllegalArgumentError
from kquota.metering.callback import ClientQuotaType, DefaultQuotaCallback, KafkaPrincipal
from kquota.metering.engine import QuotaManagers
from kquota.metering.guard import CallbackGuard
from kquota.metering.managers import INACTIVE_MS
from kquota.metering.meters import UNLIMITED, BucketMeter, RateMeter, Throttle
from kquota.metering.requests import NOT_THROTTLED, RequestQuotas
from kquota.metering.statistics import Windows
from kquota.metering.throttling import LONGEST_MS
from kquota.quotas import ClientQuotaEntity, MeterKey, is_same_value

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000
PRODUCE = ClientQuotaType.PRODUCE
KEYS = [quota_type.key for quota_type in ClientQuotaType]


def rate(limit: float) -> RateMeter:
    return RateMeter({}, limit, Windows(), None)


def bucket(limit: float) -> BucketMeter:
    return BucketMeter({}, limit, Windows())


def wait_ms(throttle: Throttle | None) -> int | None:
    return None if throttle is None else throttle.throttle_ms


@pytest.mark.parametrize(
    ("value", "wait", "measured"),
    [(math.nan, 0, math.nan), (math.inf, LONGEST_MS, math.inf), (-math.inf, None, -math.inf), (-500.0, None, -50.0)],
)
def test_records_of_odd_values(value: float, wait: int | None, measured: float) -> None:
    """They count, and go with their sample."""
    meter = rate(100)
    assert wait_ms(meter.record(value, NOW)) == wait
    assert is_same_value(meter.measure(NOW), measured)
    assert meter.measure(NOW + 11_000) == 0


@pytest.mark.parametrize(("value", "tokens"), [(math.nan, math.nan), (math.inf, -math.inf)])
def test_a_bucket_never_recovers_from_what_is_no_number(value: float, tokens: float) -> None:
    """Nor does Kafka's, until the meter is another. One that does not know its tokens makes nobody wait."""
    meter = bucket(2)
    throttle = meter.record(value, NOW)
    assert wait_ms(throttle) == (LONGEST_MS if tokens < 0 else None)
    assert is_same_value(meter.measure(NOW + HOUR_MS), tokens)


def test_what_is_given_back_beyond_the_burst_is_lost() -> None:
    meter = bucket(2)
    meter.record_unchecked(-math.inf, NOW)
    assert meter.measure(NOW) == 22


@pytest.mark.parametrize(
    ("limit", "wait"),
    [
        (0.0, LONGEST_MS),
        (-0.0, LONGEST_MS),
        (-5.0, -30_000),
        (math.nan, 0),
        (math.inf, None),
        (-math.inf, 0),
        (5e-324, LONGEST_MS),
        (UNLIMITED, None),
    ],
)
def test_rates_under_odd_limits(limit: float, wait: int | None) -> None:
    """Over a limit of 0 for as long as can be told; below 0 nothing can be waited for."""
    assert wait_ms(rate(limit).record(100, NOW)) == wait


@pytest.mark.parametrize(
    ("limit", "wait"), [(0.0, LONGEST_MS), (-5.0, -(NOW + 20_000)), (math.nan, None), (math.inf, None)]
)
def test_buckets_under_odd_limits(limit: float, wait: int | None) -> None:
    """A bucket that fills at less than nothing has lost what would have come in since the epoch."""
    assert wait_ms(bucket(limit).record(100, NOW)) == wait


def test_a_negative_wait_is_none() -> None:
    """Where several quotas are met, and where traces are replayed."""
    managers = QuotaManagers(BrokerConfig())
    managers.update_quota("producer_byte_rate", ClientQuotaEntity({"user": "a"}), -5)
    assert RequestQuotas(managers).produce("a", "c", 100, 0.0, NOW) == NOT_THROTTLED


@pytest.mark.parametrize("backwards_ms", [1, 999, 1000, 2 * HOUR_MS])
def test_a_clock_that_goes_back(backwards_ms: int) -> None:
    """A rate goes on in its sample, and a bucket has what it had then, as if time had not passed."""
    by_rate, partition_rows = rate(1000), bucket(2)
    assert by_rate.record(10_000, NOW) is None
    throttle = by_rate.record(10_000, NOW - backwards_ms)
    assert throttle is not None
    assert throttle.value == 20_000 / (by_rate.rate.added_over_ms / 1000)
    assert 9_000 < by_rate.rate.added_over_ms <= 10_000
    partition_rows.record_unchecked(22, NOW)
    assert wait_ms(partition_rows.check(NOW - backwards_ms)) == backwards_ms
    assert partition_rows.check(NOW) is None


def test_a_clock_that_goes_back_drops_no_meter() -> None:
    managers = QuotaManagers(BrokerConfig(quota_producer_default=10))
    managers.produce.record("a", "c", 1, NOW)
    managers.expire(NOW - 2 * HOUR_MS)
    assert len(list(managers.produce.meters())) == 1
    managers.expire(NOW + INACTIVE_MS + 1)
    assert list(managers.produce.meters()) == []


def test_no_quotas_no_limit_and_a_limit() -> None:
    """Not counted at all; counted, and within whatever it is; counted under the limit."""
    managers = QuotaManagers(BrokerConfig())
    assert managers.produce.record("a", "c", math.inf, NOW) is None
    assert managers.produce.meter("a", "c") is None
    managers.update_quota("producer_byte_rate", ClientQuotaEntity({"user": "b"}), 1)
    assert managers.produce.record("a", "c", 1e18, NOW) is None
    meter = managers.produce.meter("a", "c")
    assert meter is not None
    assert (meter.limit, meter.measure(NOW)) == (UNLIMITED, 1e17)
    assert managers.produce.record("b", "c", 11, NOW) is not None


@pytest.mark.parametrize("key", ["nonsense", "", "Produce", "producer_byte_rate "])
def test_an_unknown_key_is_refused(key: str) -> None:
    with pytest.raises(KeyError):
        QuotaManagers(BrokerConfig()).update_quota(key, ClientQuotaEntity({"user": "a"}), 1)


def test_connections_are_limited_for_addresses_alone() -> None:
    with pytest.raises(IllegalArgumentError):
        QuotaManagers(BrokerConfig()).update_quota("connection_creation_rate", ClientQuotaEntity({"user": "a"}), 1)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("name", ["", ":", "a:b", "<default>", "\x00", "é" * 100_000])
def test_any_text_is_a_name(name: str, key: str) -> None:
    """Empty names are those of clients that have none: they meet no default client id."""
    managers = QuotaManagers(BrokerConfig())
    managers.update_quota(key, ClientQuotaEntity({"user": None, "client-id": None}), 10)
    managers.of(ClientQuotaType.of_key(key)).unrecord(name, name, 1, NOW)
    [meter] = managers.of(ClientQuotaType.of_key(key)).meters()
    assert meter.key == (MeterKey({"user": name, "client-id": name}) if name else MeterKey({}))
    assert meter.limit == (10 if name else UNLIMITED)


class Telling(DefaultQuotaCallback):
    """Gives what it is told to."""

    def __init__(self, tags: Callable[[str], Any], limit: Any = 10.0) -> None:
        super().__init__()
        self.tags, self.limit = tags, limit

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> Any:
        return self.tags(client_id)

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> Any:
        return self.limit() if callable(self.limit) else self.limit


def test_tags_are_never_joined() -> None:
    """Kafka's sensors have names in which these would be the same: "1:2:3"."""
    tags = {"a": {"x": "1:2", "y": "3"}, "b": {"x": "1", "y": "2:3"}, "c": {"z": "1:2", "y": "3"}, "d": {}}
    managers = QuotaManagers(BrokerConfig(), Telling(tags.__getitem__))
    assert len({id(managers.produce.meter("u", client_id)) for client_id in tags}) == 4


class Liar(Mapping[str, str]):
    """Says another thing each time, and in the end nothing."""

    def __init__(self) -> None:
        self.left = 1

    def __getitem__(self, tag: str) -> str:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("no more")
        return "first"

    def __iter__(self) -> Iterator[str]:
        return iter(["tag"])

    def __len__(self) -> int:
        return 1


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


def recursion() -> float:
    return recursion()


def guarded(callback: Telling, words: list[str]) -> CallbackGuard:
    return CallbackGuard(callback, monotonic_ms=lambda: 0.0, report=words.append)


@pytest.mark.parametrize("tags", [None, 5, "text", ["a"], {"user": None}, {1: "a"}, {"a": b"x"}, Unspeakable()])
def test_a_guard_takes_no_tags_but_texts(tags: Any) -> None:
    """Counted on the user and the client id instead, which is said in few words."""
    words: list[str] = []
    managers = QuotaManagers(BrokerConfig(), guarded(Telling(lambda _: tags), words))
    managers.produce.record("alice", "c", 1, NOW)
    [meter] = managers.produce.meters()
    assert meter.key == MeterKey({"user": "alice", "client-id": "c"})
    assert words[0].startswith("quota_metric_tags answered ")


@pytest.mark.parametrize(
    "limit",
    [True, False, 0, -1, -0.0, math.nan, -math.inf, 10**400, "5", b"5", Decimal(5), 5j, [], Unspeakable(), recursion],
    ids=lambda limit: type(limit).__name__,
)
def test_a_guard_takes_no_limits_but_numbers_above_zero(limit: Any) -> None:
    words: list[str] = []
    managers = QuotaManagers(BrokerConfig(), guarded(Telling(lambda _: {"g": "g"}, limit), words))
    assert managers.produce.record("alice", "c", 1e18, NOW) is None
    assert words[0].startswith(("quota_limit answered ", "quota_limit raised RecursionError"))
    assert max(map(len, words)) < 250


@pytest.mark.parametrize("limit", [None, 5, 5.0, math.inf, 5e-324, 2**63])
def test_a_guard_takes_every_right_limit(limit: float | None) -> None:
    guard = guarded(Telling(lambda _: {}, limit), [])
    assert guard.quota_limit(PRODUCE, {}) == limit
    assert (guard.faults.raised, guard.faults.nonsense) == (0, 0)


def test_tags_are_taken_once() -> None:
    """A mapping that changes afterwards changes nothing."""
    tags = {"group": "one"}
    guard = guarded(Telling(lambda _: tags), [])
    found = guard.quota_metric_tags(PRODUCE, KafkaPrincipal("User", "a"), "c")
    tags["group"] = "two"
    assert found == {"group": "one"}
    liar = guarded(Telling(lambda _: Liar()), [])
    assert liar.quota_metric_tags(PRODUCE, KafkaPrincipal("User", "a"), "c") == {"tag": "first"}


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_guard_holds_up_no_interrupt(interrupt: type[BaseException]) -> None:
    """It is not the callback's, and not the guard's either."""

    def interrupted() -> float:
        raise interrupt

    guard = guarded(Telling(lambda _: {}, interrupted), [])
    with pytest.raises(interrupt):
        guard.quota_limit(PRODUCE, {})
    assert guard.faults.raised == 0


def test_without_a_guard_it_is_the_callers() -> None:
    """Nothing is counted, and the next record is as if there had been none."""
    callback = Telling(lambda _: {"g": "g"}, recursion)
    managers = QuotaManagers(BrokerConfig(), callback)
    with pytest.raises(RecursionError):
        managers.produce.record("alice", "c", 1, NOW)
    assert list(managers.produce.meters()) == []
    callback.limit = 10.0
    assert managers.produce.record("alice", "c", 100, NOW) is None
