"""ClientQuotaFilter and ``describe``: Kafka's validation, matching and messages (ClientQuotasImage)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.errors import ApiError, IllegalArgumentError
from kquota.quotas import (
    CLIENT_ID,
    IP,
    KAFKA,
    USER,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    MatchType,
    describe,
)
from tests.kit.strategies import crowded_entities, entities, snapshots

of_entity = ClientQuotaFilterComponent.of_entity
of_default_entity = ClientQuotaFilterComponent.of_default_entity
of_entity_type = ClientQuotaFilterComponent.of_entity_type


def entity(user: str | None = "", client_id: str | None = "", ip: str | None = "") -> ClientQuotaEntity:
    """An empty text leaves the type out, None is the default."""
    return ClientQuotaEntity({t: n for t, n in ((USER, user), (CLIENT_ID, client_id), (IP, ip)) if n != ""})


STORED = [
    entity("user-1", "client-id-1"),
    entity("user-1", None),
    entity("user-1"),
    entity("user-2", "client-id-2"),
    entity("user-2"),
    entity("user-3", None),
    entity("user-3"),
    entity(None, "client-id-2"),
    entity(None),
    entity("user-4", None),
    entity(client_id="client-id-2"),
    entity(ip="1.2.3.4"),
    entity(ip=None),
]
QUOTAS = {
    e: {"connection_creation_rate" if IP in e.entries else "request_percentage": i + 0.5} for i, e in enumerate(STORED)
}


def found(quota_filter: ClientQuotaFilter) -> set[ClientQuotaEntity]:
    result = describe(QUOTAS, quota_filter)
    assert not isinstance(result, ApiError)
    assert result == {e: QUOTAS[e] for e in result}
    return set(result)


@pytest.mark.parametrize("stored", STORED, ids=str)
def test_an_exact_filter_finds_exactly_its_entity(stored: ClientQuotaEntity) -> None:
    """Upstream: testDescribeClientQuotasMatchExact."""
    components = [of_default_entity(t) if n is None else of_entity(t, n) for t, n in stored.entries.items()]
    assert found(ClientQuotaFilter.contains_only(components)) == {stored}


@pytest.mark.parametrize(
    "absent",
    [
        entity("user-1", "client-id-2"),
        entity("user-3", "client-id-1"),
        entity("user-2", None),
        entity("user-4"),
        entity(None, "client-id-1"),
        entity(client_id="client-id-1"),
        entity(client_id="client-id-3"),
        entity(client_id=None),
        entity(ip="1.2.3.5"),
    ],
    ids=str,
)
def test_an_exact_filter_finds_nothing_else(absent: ClientQuotaEntity) -> None:
    components = [of_default_entity(t) if n is None else of_entity(t, n) for t, n in absent.entries.items()]
    assert found(ClientQuotaFilter.contains_only(components)) == set()


USER_1 = {e for e in STORED if e.entries.get(USER) == "user-1"}


@pytest.mark.parametrize(
    "quota_filter, expected",
    [
        (ClientQuotaFilter.contains([of_entity(USER, "user-1")]), USER_1),
        (ClientQuotaFilter.contains([of_entity(USER, "unknown")]), set()),
        (
            ClientQuotaFilter.contains([of_entity(CLIENT_ID, "client-id-2")]),
            {entity("user-2", "client-id-2"), entity(None, "client-id-2"), entity(client_id="client-id-2")},
        ),
        (ClientQuotaFilter.contains([of_default_entity(USER)]), {entity(None, "client-id-2"), entity(None)}),
        (ClientQuotaFilter.contains_only([of_entity(USER, "user-2")]), {entity("user-2")}),
        (ClientQuotaFilter.contains_only([of_entity(CLIENT_ID, "client-id-1")]), set()),
        (
            ClientQuotaFilter.contains_only([of_entity_type(USER)]),
            {entity("user-1"), entity("user-2"), entity("user-3"), entity(None)},
        ),
        (ClientQuotaFilter.contains([of_entity_type(USER)]), {e for e in STORED if USER in e.entries}),
        (ClientQuotaFilter.contains_only([of_entity_type(CLIENT_ID)]), {entity(client_id="client-id-2")}),
        (ClientQuotaFilter.contains([of_entity_type(CLIENT_ID)]), {e for e in STORED if CLIENT_ID in e.entries}),
        (ClientQuotaFilter.contains([of_entity_type(IP)]), {entity(ip="1.2.3.4"), entity(ip=None)}),
        (ClientQuotaFilter.contains_only([of_default_entity(IP)]), {entity(ip=None)}),
        (
            ClientQuotaFilter.contains([of_entity(USER, "user-1"), of_entity_type(CLIENT_ID)]),
            {entity("user-1", "client-id-1"), entity("user-1", None)},
        ),
        (ClientQuotaFilter.contains([of_entity(USER, "")]), set()),
        (ClientQuotaFilter.contains([]), set(STORED)),
        (ClientQuotaFilter.all(), set(STORED)),
        (ClientQuotaFilter.contains_only([]), set()),
    ],
)
def test_matching(quota_filter: ClientQuotaFilter, expected: set[ClientQuotaEntity]) -> None:
    """Upstream: testDescribeClientQuotasMatchPartial, and the corollaries of its rule."""
    assert found(quota_filter) == expected


def test_a_name_that_looks_like_the_default_is_a_name() -> None:
    """Upstream: testClientQuotasWithDefaultName."""
    quotas = {entity(client_id="<default>"): {"producer_byte_rate": 20000.0}}
    assert describe(quotas, ClientQuotaFilter.contains_only([of_default_entity(CLIENT_ID)])) == {}
    assert describe(quotas, ClientQuotaFilter.contains_only([of_entity(CLIENT_ID, "<default>")])) == quotas


def raw(entity_type: str, match_type: int, match: str | None = None) -> ClientQuotaFilterComponent:
    return ClientQuotaFilterComponent(entity_type, match_type, match)


COMBINATION = (
    "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
    "filter component."
)


@pytest.mark.parametrize(
    "components, error",
    [
        ([raw("", 0, "a")], ApiError(42, "Invalid empty entity type.")),
        (
            [raw(USER, 0, "a"), raw(USER, 2)],
            ApiError(42, "Entity type user cannot appear more than once in the filter."),
        ),
        ([raw("other", 0, "a")], ApiError(35, "Unsupported entity type other")),
        ([raw("other", 9)], ApiError(35, "Unsupported entity type other")),
        ([raw(USER, 0)], ApiError(42, "Request specified MATCH_TYPE_EXACT, but set match string to null.")),
        ([raw(USER, 1, "a")], ApiError(42, "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.")),
        (
            [raw(USER, 2, "")],
            ApiError(42, "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        ),
        ([raw(USER, 3)], ApiError(42, "Unknown match type 3")),
        ([raw(USER, -1, "a")], ApiError(42, "Unknown match type -1")),
        ([raw(USER, 2), raw(IP, 2)], ApiError(42, COMBINATION)),
        ([raw(IP, 0, "1.1.1.1"), raw(CLIENT_ID, 1)], ApiError(42, COMBINATION)),
        # the first component that fails is reported, and the combination only after all of them
        ([raw(USER, 7), raw("", 0)], ApiError(42, "Unknown match type 7")),
        ([raw(IP, 2), raw(USER, 2), raw("other", 2)], ApiError(35, "Unsupported entity type other")),
        ([raw(USER, 2), raw(USER, 7)], ApiError(42, "Entity type user cannot appear more than once in the filter.")),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_filters_that_are_refused(components: list[ClientQuotaFilterComponent], error: ApiError, strict: bool) -> None:
    """An unknown type is UNSUPPORTED_VERSION here, although it is INVALID_REQUEST when altering."""
    assert describe(QUOTAS, ClientQuotaFilter(tuple(components), strict)) == error


def test_a_registered_type_can_be_asked_for() -> None:
    model = KAFKA.with_entity_type("group", keys=["producer_byte_rate"])
    group = ClientQuotaEntity({"group": "g"})
    quotas = {**QUOTAS, group: {"producer_byte_rate": 1.0}}
    assert describe(quotas, ClientQuotaFilter.contains([of_entity("group", "g")]), model=model) == {
        group: quotas[group]
    }


@pytest.mark.parametrize(
    "make",
    [
        lambda: of_entity(USER, None),  # type: ignore[arg-type]
        lambda: of_entity(None, "a"),  # type: ignore[arg-type]
        lambda: of_default_entity(None),  # type: ignore[arg-type]
        lambda: of_entity_type(None),  # type: ignore[arg-type]
    ],
)
def test_nulls_are_illegal_arguments(make: object) -> None:
    with pytest.raises(IllegalArgumentError):
        make()  # type: ignore[operator]


def test_components_have_value_equality() -> None:
    """The default and "any" differ; the match types are the numbers on the wire."""
    assert of_entity(USER, "a") == of_entity(USER, "a")
    assert len({of_default_entity(USER), of_entity_type(USER), of_entity(USER, "a"), of_entity(USER, "")}) == 4
    assert [of_entity(USER, "a").match_type, of_default_entity(USER).match_type, of_entity_type(USER).match_type] == [
        0, 1, 2
    ]  # fmt: skip


def test_an_entity_without_values_is_not_described() -> None:
    assert describe({entity("a"): {}, entity("b"): {"k": 1.0}}, ClientQuotaFilter.all()) == {entity("b"): {"k": 1.0}}


components = st.one_of(
    st.builds(of_entity, st.sampled_from([USER, CLIENT_ID]), st.sampled_from(["a", "b", "<default>"])),
    st.builds(of_default_entity, st.sampled_from([USER, CLIENT_ID])),
    st.builds(of_entity_type, st.sampled_from([USER, CLIENT_ID])),
)
filters = st.lists(components, max_size=2, unique_by=lambda c: c.entity_type)


@given(snapshots(crowded_entities), filters)
def test_strict_finds_a_part_of_what_the_open_filter_finds(
    snapshot: dict[ClientQuotaEntity, dict[str, float]], chosen: list[ClientQuotaFilterComponent]
) -> None:
    """What strict leaves out has a type that no component names."""
    wide = describe(snapshot, ClientQuotaFilter.contains(chosen))
    narrow = describe(snapshot, ClientQuotaFilter.contains_only(chosen))
    assert isinstance(wide, dict)
    assert isinstance(narrow, dict)
    assert narrow.keys() <= wide.keys()
    named = {component.entity_type for component in chosen}
    assert all(e.entries.keys() == named for e in narrow)
    assert all(e.entries.keys() - named for e in wide.keys() - narrow.keys())


@given(snapshots(crowded_entities), components, components)
def test_components_are_conditions_that_all_hold(
    snapshot: dict[ClientQuotaEntity, dict[str, float]],
    one: ClientQuotaFilterComponent,
    other: ClientQuotaFilterComponent,
) -> None:
    both = {e for e in snapshot if ClientQuotaFilter.contains([one, other]).matches(e)}
    each = [{e for e in snapshot if ClientQuotaFilter.contains([c]).matches(e)} for c in (one, other)]
    assert both == each[0] & each[1]


@given(snapshots())
def test_a_type_is_its_names_and_its_default(snapshot: dict[ClientQuotaEntity, dict[str, float]]) -> None:
    for entity_type in (USER, CLIENT_ID, IP):
        of_type = {e for e in snapshot if ClientQuotaFilter.contains([of_entity_type(entity_type)]).matches(e)}
        names = {e.entries[entity_type] for e in of_type}
        parts = [of_default_entity(entity_type) if n is None else of_entity(entity_type, n) for n in names]
        assert of_type == {e for c in parts for e in snapshot if ClientQuotaFilter.contains([c]).matches(e)}


@given(st.lists(entities, unique=True), st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_the_snapshots(chosen: list[ClientQuotaEntity], random: object) -> None:
    shuffled = list(chosen)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one = describe({e: {"k": 1.0} for e in chosen}, ClientQuotaFilter.all())
    other = describe({e: {"k": 1.0} for e in shuffled}, ClientQuotaFilter.all())
    assert list(one) == list(other)  # type: ignore[arg-type]


def test_match_type_numbers() -> None:
    assert [MatchType.EXACT, MatchType.DEFAULT, MatchType.SPECIFIED] == [0, 1, 2]
