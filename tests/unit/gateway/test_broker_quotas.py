"""Changes of quotas, put in force at all brokers together or bit by bit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.config import BrokerConfig
from kquota.gateway.quotas.broker_quotas import AT_ONCE, BrokerQuotas
from kquota.metering.engine import Change
from kquota.quotas import ClientQuotaEntity
from tests.kit.strategies import FEW_NAMES, crowded_entities

PRODUCE = "producer_byte_rate"
CLIENTS = [(user, client_id) for user in FEW_NAMES for client_id in FEW_NAMES]

changes = st.lists(st.tuples(st.just(PRODUCE), crowded_entities, st.sampled_from([None, 5.0, 100.0])), max_size=4)


def of_user(number: int) -> ClientQuotaEntity:
    return ClientQuotaEntity({"user": f"u{number}"})


def limits(quotas: BrokerQuotas, node_id: int) -> list[float | None]:
    """As its meters have them."""
    manager = quotas.of(node_id).managers.produce
    meters = [manager.meter(*client) for client in CLIENTS]
    return [None if meter is None else meter.limit for meter in meters]


@given(st.lists(st.one_of(changes, st.sampled_from(["next", "broker"])), max_size=15))
def test_bit_by_bit_is_in_the_end_as_at_once(steps: list[list[Change] | str]) -> None:
    by_bits, at_once = BrokerQuotas(BrokerConfig()), BrokerQuotas(BrokerConfig())
    for number, step in enumerate(steps):
        if step == "next":
            by_bits.apply_next()
        elif step == "broker":
            assert limits(by_bits, number) == limits(at_once, number)  # a new one has the quotas of now
        else:
            assert not isinstance(step, str)
            by_bits.queue(step)
            at_once.apply(step)
            assert not at_once.is_behind
    while by_bits.is_behind:
        by_bits.apply_next()
    assert by_bits.values == at_once.values
    for node_id, _ in at_once:
        assert limits(by_bits, node_id) == limits(at_once, node_id)


def test_one_broker_has_the_changes_before_the_next_has() -> None:
    quotas = BrokerQuotas(BrokerConfig())
    brokers = [quotas.of(node_id).managers.produce for node_id in (1, 2)]
    quotas.queue([(PRODUCE, of_user(1), 5.0)])
    quotas.queue([(PRODUCE, of_user(1), 7.0)])
    found = []
    while quotas.is_behind:
        quotas.apply_next()
        found.append([one.limit("u1", "c") for one in brokers])
    assert found == [[5.0, None], [5.0, 5.0], [7.0, 5.0], [7.0, 7.0]]


def test_what_is_queued_is_in_force_before_what_is_applied_at_once() -> None:
    quotas = BrokerQuotas(BrokerConfig())
    one = quotas.of(1).managers.produce
    quotas.queue([(PRODUCE, of_user(1), 5.0), (PRODUCE, of_user(2), 5.0)])
    quotas.apply([(PRODUCE, of_user(1), None)])
    assert (one.limit("u1", "c"), one.limit("u2", "c")) == (None, 5.0)
    assert quotas.values == {(PRODUCE, of_user(2)): 5.0}


def test_very_many_changes_are_given_to_a_broker_in_parts() -> None:
    quotas = BrokerQuotas(BrokerConfig())
    one = quotas.of(1).managers.produce
    quotas.queue((PRODUCE, of_user(number), 5.0) for number in range(AT_ONCE + 1))
    quotas.apply_next()
    assert [one.limit(f"u{number}", "c") for number in (0, AT_ONCE - 1, AT_ONCE)] == [5.0, 5.0, None]
    quotas.apply_next()
    assert one.limit(f"u{AT_ONCE}", "c") == 5.0
    assert not quotas.is_behind


@given(st.integers(1, 9), st.data())
def test_a_change_that_fails_costs_no_other_one_given_with_it(count: int, data: st.DataObject) -> None:
    quotas = BrokerQuotas(BrokerConfig())
    managers = [quotas.of(node_id).managers.produce for node_id in (1, 2)]
    place = data.draw(st.integers(0, count))
    given_together: list[Change] = [(PRODUCE, of_user(number), 5.0) for number in range(count)]
    quotas.queue([*given_together[:place], ("no such key", of_user(0), 5.0), *given_together[place:]])
    errors = 0
    while quotas.is_behind:
        try:
            quotas.apply_next()
        except KeyError:
            errors += 1
    assert errors == 2
    for one in managers:
        assert [one.limit(f"u{number}", "c") for number in range(count)] == [5.0] * count


def test_the_error_of_a_change_says_which_one_it_is() -> None:
    quotas = BrokerQuotas(BrokerConfig())
    quotas.of(1)
    quotas.queue([("no such key", of_user(1), 5.0)])
    with pytest.raises(KeyError) as raised:
        quotas.apply_next()
    assert raised.value.__notes__ == ["no such key of user=u1 is not in force at one broker"]
