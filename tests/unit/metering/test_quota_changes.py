"""Many quotas that change together."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.config import BrokerConfig
from kquota.errors import IllegalArgumentError
from kquota.metering.callback import CallbackQuotaEntity, ClientQuotaType, DefaultQuotaCallback, KafkaPrincipal
from kquota.metering.engine import Change, QuotaManagers, client_quotas
from kquota.metering.meters import UNLIMITED
from kquota.quotas import ClientQuotaEntity

NOW = 1_700_000_000_000
PRODUCE, FETCH = ClientQuotaType.PRODUCE, ClientQuotaType.FETCH
USERS = ("alice", "bob", "carol")
PAIR = ClientQuotaEntity({"user": "bob", "client-id": "c"})


def of_user(name: str | None) -> ClientQuotaEntity:
    return ClientQuotaEntity({"user": name})


def of_ip(name: str | None) -> ClientQuotaEntity:
    return ClientQuotaEntity({"ip": name})


class Counting(DefaultQuotaCallback):
    """Counts how often it is asked for a limit, and refuses quotas of a user on request."""

    def __init__(self) -> None:
        super().__init__()
        self.limits_asked = 0
        self.refused: ClientQuotaEntity | None = None

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        self.limits_asked += 1
        return super().quota_limit(quota_type, metric_tags)

    def update_quota(self, quota_type: ClientQuotaType, quota_entity: CallbackQuotaEntity, new_value: float) -> None:
        if quota_entity.entity == self.refused:
            raise ValueError(quota_entity)
        super().update_quota(quota_type, quota_entity, new_value)


def limits(managers: QuotaManagers) -> dict[tuple[ClientQuotaType, str], float]:
    """Of all meters of clients."""
    return {
        (quota_type, meter.key.to_text()): meter.limit
        for quota_type in ClientQuotaType
        for meter in managers.of(quota_type).meters()
    }


def with_meters(managers: QuotaManagers) -> QuotaManagers:
    """One for each user and rate, and for two addresses; also where nothing is set."""
    for user in USERS:
        managers.produce.get_or_create_meter(user, "c")
        managers.fetch.get_or_create_meter(user, "c")
        managers.connections.accept("PLAINTEXT", f"10.0.0.{len(user)}", NOW)
    return managers


changes = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from([PRODUCE.key, FETCH.key]),
            st.sampled_from([of_user(None), *map(of_user, USERS)]),
            st.sampled_from([None, 5.0, 100.0]),
        ),
        st.tuples(
            st.just("connection_creation_rate"),
            st.sampled_from([of_ip(None), of_ip("10.0.0.3"), of_ip("10.0.0.5")]),
            st.sampled_from([None, 3.0]),
        ),
    ),
    max_size=12,
)


@given(changes, changes)
def test_many_together_are_as_one_after_the_other(first: list[Change], then: list[Change]) -> None:
    together, singly = QuotaManagers(BrokerConfig()), QuotaManagers(BrokerConfig())
    for some in (first, then):
        together.update_quotas(iter(some))
        for change in some:
            singly.update_quota(*change)
        with_meters(together)
        with_meters(singly)
        assert limits(together) == limits(singly)
        assert {one.tags["ip"]: one.limit for one in together.connections.meters()} == {
            one.tags["ip"]: one.limit for one in singly.connections.meters()
        }


class OnlyUsers(DefaultQuotaCallback):
    """Its tags have no client id, and Kafka's callback limits them all the same."""

    def quota_metric_tags(
        self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str
    ) -> Mapping[str, str]:
        return {"user": principal.name}


FEW: tuple[str | None, ...] = ("a", "b", None)
OF_CLIENTS = [
    *[ClientQuotaEntity({kind: name}) for kind in ("user", "client-id") for name in FEW],
    *[ClientQuotaEntity({"user": user, "client-id": client_id}) for user in FEW for client_id in FEW],
]


@given(
    st.booleans(),
    st.lists(
        st.lists(st.tuples(st.sampled_from(OF_CLIENTS), st.sampled_from([None, 5.0, 100.0])), min_size=1, max_size=3),
        max_size=8,
    ),
)
def test_all_limits_are_those_that_a_new_callback_gives(
    is_swapped: bool, steps: list[list[tuple[ClientQuotaEntity, float | None]]]
) -> None:
    """Whichever meters a change leaves out."""
    managers = QuotaManagers(BrokerConfig(quota_producer_default=1000))
    clients = [(user, client_id) for user in ("a", "b", "other", "") for client_id in ("a", "b", "other", "")]
    if is_swapped:
        managers.swap_callback(OnlyUsers(), {})
        for client in clients:
            managers.produce.get_or_create_meter(*client)
        managers.swap_callback(DefaultQuotaCallback(), {})
    values: dict[ClientQuotaEntity, float | None] = {}
    for some in steps:
        managers.update_quotas((PRODUCE.key, *change) for change in some)
        values.update(some)
        anew = DefaultQuotaCallback()
        anew.use_static_defaults({PRODUCE.key: 1000.0})
        for entity, value in values.items():
            if value is not None:
                anew.update_quota(PRODUCE, CallbackQuotaEntity(entity), value)
        for client in clients:
            managers.produce.get_or_create_meter(*client)
        for meter in managers.produce.meters():
            limit = anew.quota_limit(PRODUCE, meter.tags)
            assert meter.limit == (UNLIMITED if limit is None else limit)


@pytest.mark.parametrize(
    ("changed", "asked"),
    [
        (["user=alice"], [{"user": "alice", "client-id": ""}]),
        (["user=alice", "user=bob,client-id=c", "user=alice", "user=dave"],
         [{"user": "alice", "client-id": ""}, {"user": "bob", "client-id": "c"}]),
        (["client-id=c"], []),
    ],
)  # fmt: skip
def test_only_meters_that_a_change_can_bind_are_asked_for(changed: list[str], asked: list[dict[str, str]]) -> None:
    callback = DefaultQuotaCallback()
    managers = QuotaManagers(BrokerConfig(), callback)
    managers.update_quotas([(PRODUCE.key, of_user("alice"), 5.0), (PRODUCE.key, PAIR, 7.0)])
    for user in ("alice", "bob"):
        managers.produce.meter(user, "c")
    found = managers.produce.limits_by(callback, [ClientQuotaEntity.from_text(text) for text in changed])
    assert [meter.tags for meter, _ in found] == asked
    assert len(managers.produce.limits_by(callback)) == 2


def limited(callback: DefaultQuotaCallback) -> QuotaManagers:
    """With meters, each under a limit of 50 of its own."""
    managers = QuotaManagers(BrokerConfig(), callback)
    managers.update_quotas((key, of_user(user), 50.0) for key in (PRODUCE.key, FETCH.key) for user in USERS)
    return with_meters(managers)


def test_limits_are_asked_for_once_after_all_changes_and_only_of_what_changed() -> None:
    callback = Counting()
    managers = limited(callback)
    callback.limits_asked = 0
    managers.update_quotas([(PRODUCE.key, of_user(user), 7.0) for user in (*USERS, None, "dave")])
    assert callback.limits_asked == len(USERS)
    managers.update_quotas([])
    assert callback.limits_asked == len(USERS)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (("leader_replication_throttled_rate", of_user("alice"), 1.0), KeyError),
        (("connection_creation_rate", of_user("alice"), 1.0), IllegalArgumentError),
    ],
)
def test_nothing_is_changed_where_one_cannot_be(wrong: Change, error: type[Exception]) -> None:
    managers = with_meters(QuotaManagers(BrokerConfig()))
    before = limits(managers)
    right: list[Change] = [(PRODUCE.key, of_user(None), 1.0), ("connection_creation_rate", of_ip(None), 1.0)]
    with pytest.raises(error):
        managers.update_quotas([*right, wrong])
    assert limits(managers) == before
    assert not managers.produce.is_enabled()
    assert managers.connections.source("10.0.0.5") is None


def test_no_limit_changes_where_the_callback_refuses_one() -> None:
    """Of no type. What was set is known all the same to a callback that is set later."""
    callback = Counting()
    managers = limited(callback)
    before = limits(managers)
    assert set(before.values()) == {50.0}
    callback.refused = of_user("bob")
    with pytest.raises(ValueError, match="bob"):
        managers.update_quotas(
            [(FETCH.key, of_user("alice"), 1.0), (PRODUCE.key, of_user("bob"), 2.0), (FETCH.key, of_user("carol"), 3.0)]
        )
    assert limits(managers) == before
    managers.swap_callback(DefaultQuotaCallback(), {})
    changed = {place: limit for place, limit in limits(managers).items() if limit != before[place]}
    assert changed == {(FETCH, "user=alice"): 1.0, (PRODUCE, "user=bob"): 2.0, (FETCH, "user=carol"): 3.0}


def test_what_is_set_for_clients_and_not_for_addresses() -> None:
    snapshot = {
        of_user("alice"): {PRODUCE.key: 1.0, FETCH.key: 2.0},
        of_ip("10.0.0.1"): {"connection_creation_rate": 5.0},
    }
    assert list(client_quotas(snapshot)) == [(PRODUCE.key, of_user("alice"), 1.0), (FETCH.key, of_user("alice"), 2.0)]
