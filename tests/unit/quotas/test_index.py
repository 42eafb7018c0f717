"""An index answers as a scan over all entities does, before and after changes."""

from hypothesis import given
from hypothesis import strategies as st

from kquota.quotas import (
    CLIENT_ID,
    IP,
    USER,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    QuotaChange,
    QuotaIndex,
    QuotaSnapshot,
    apply_changes,
    describe,
)
from tests.kit.strategies import FEW_NAMES, crowded_entities, snapshots

names = st.sampled_from([None, *FEW_NAMES, "other"])
components = st.builds(
    ClientQuotaFilterComponent, st.sampled_from([USER, CLIENT_ID, IP, "group", ""]), st.integers(0, 3), names
)
legal_components = st.builds(
    lambda kind, name, way: (
        ClientQuotaFilterComponent.of_entity_type(kind)
        if way
        else ClientQuotaFilterComponent.of_default_entity(kind)
        if name is None
        else ClientQuotaFilterComponent.of_entity(kind, name)
    ),
    st.sampled_from([USER, CLIENT_ID]),
    names,
    st.booleans(),
)
filters = st.builds(
    ClientQuotaFilter,
    st.lists(legal_components, max_size=2).map(tuple) | st.lists(components, max_size=3).map(tuple),
    strict=st.booleans(),
)
changes = st.builds(
    QuotaChange,
    crowded_entities,
    st.sampled_from(["producer_byte_rate", "consumer_byte_rate"]),
    st.none(),
    st.none() | st.just(7.0),
)


@given(snapshots(crowded_entities, max_size=8), filters, st.lists(st.lists(changes, max_size=4), max_size=3))
def test_an_index_answers_as_a_scan(
    snapshot: dict[ClientQuotaEntity, dict[str, float]],
    quota_filter: ClientQuotaFilter,
    commits: list[list[QuotaChange]],
) -> None:
    """The same entities in the same order with the same values, or the same refusal."""
    index = QuotaIndex(snapshot)
    plain: QuotaSnapshot = snapshot
    asked = [quota_filter, ClientQuotaFilter.all()]
    for commit in [[], *commits]:
        before = [index.describe(one) for one in asked]
        changed = index.with_changes(commit)
        plain = apply_changes(plain, commit)
        for one in asked:
            expected, found = describe(plain, one), changed.describe(one)
            assert str(found) == str(expected)  # NaN is not equal to itself
            if isinstance(found, dict) and isinstance(expected, dict):
                assert list(found) == list(expected)
        assert str([index.describe(one) for one in asked]) == str(before), "an index never changes"
        index = changed


def test_entities_without_values_are_not_there() -> None:
    """As in Kafka's image."""
    assert QuotaIndex({ClientQuotaEntity({USER: "a"}): {}}).describe(ClientQuotaFilter.all()) == {}
