"""Hypothesis strategies for quotas: awkward names, legal entities, snapshots, clients."""

import math

from hypothesis import strategies as st

from kquota.quotas import CLIENT_ID, IP, KAFKA, USER, ClientQuotaEntity, QuotaKey, ValueType

AWKWARD_NAMES = [
    "<default>",
    "null",
    "None",
    "~",
    "yes",
    "no",
    "0123",
    "1e3",
    "-",
    "- a",
    "a: b",
    "a #b",
    "a,b",
    "a=b",
    "a,client-id=b",
    'say "hi"',
    "it's",
    "back\\slash",
    "100%",
    "%3Cdefault%3E",
    "+",
    " ",
    " padded ",
    "tab\tbed",
    "line\nbreak",
    "\r\n",
    "\x00",
    "\x7f\x85\u2028\ufeff",
    "O=A client,CN=localhost",
    "!@#$%^&*()",
    "naïve",
    "日本語",
    "😀",
    "[x]",
    "{x}",
    "&a",
    "*a",
    "!!str x",
    "%TAG",
    "---",
    "...",
    "=",
    "<<",
    "2024-01-01",
    "0x1F",
    "1_000",
    ".inf",
    "12:30:45",
]

unicode_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
"""Any text that UTF-8 can carry, the empty one too."""

legal_names = st.one_of(st.sampled_from(AWKWARD_NAMES), unicode_text.filter(bool))
"""Names that Kafka accepts for users and client ids: anything but the empty text."""

any_names = st.one_of(legal_names, st.just(""))
entity_names = st.one_of(st.none(), legal_names)

ip_names = st.one_of(st.none(), st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str))

user_client_entities = st.one_of(
    st.builds(lambda user: ClientQuotaEntity({USER: user}), entity_names),
    st.builds(lambda client_id: ClientQuotaEntity({CLIENT_ID: client_id}), entity_names),
    st.builds(
        lambda user, client_id: ClientQuotaEntity({USER: user, CLIENT_ID: client_id}), entity_names, entity_names
    ),
)
ip_entities = st.builds(lambda ip: ClientQuotaEntity({IP: ip}), ip_names)
entities = st.one_of(user_client_entities, ip_entities)
"""Entities that Kafka accepts."""

arbitrary_entities = st.dictionaries(
    st.one_of(st.sampled_from([USER, CLIENT_ID, IP, "group", ""]), unicode_text), st.one_of(st.none(), any_names)
).map(ClientQuotaEntity)
"""Anything that an entity can hold, legal or not."""


def values_of(key: QuotaKey) -> st.SearchStrategy[float]:
    """Values that Kafka accepts for ``key``."""
    match key.value_type:
        case ValueType.LONG:
            return st.integers(1, 2**63).map(float)
        case ValueType.INT:
            return st.integers(1, 2**31 - 1).map(float)
        case ValueType.DOUBLE:
            return st.one_of(st.floats(min_value=0, exclude_min=True), st.just(math.nan))


def _values_on(types: set[str]) -> st.SearchStrategy[dict[str, float]]:
    """One key, or all of them; drawn often, so made of few draws."""
    of_key = {name: values_of(key) for name, key in (KAFKA.keys_for(types) or {}).items()}
    return st.one_of(
        *(st.fixed_dictionaries({name: values}) for name, values in of_key.items()), st.fixed_dictionaries(of_key)
    )


_USER_CLIENT_VALUES = _values_on({USER})
_IP_VALUES = _values_on({IP})


def quotas_of(entity: ClientQuotaEntity) -> st.SearchStrategy[dict[str, float]]:
    """At least one value that Kafka accepts on ``entity``."""
    return _IP_VALUES if IP in entity.entries else _USER_CLIENT_VALUES


def snapshots(
    of: st.SearchStrategy[ClientQuotaEntity] = user_client_entities, max_size: int = 4
) -> st.SearchStrategy[dict[ClientQuotaEntity, dict[str, float]]]:
    """Legal quotas on the user and client-id entities ``of``, and on a few ips."""
    return st.builds(
        lambda own, ips: {**own, **ips},
        st.dictionaries(of, _USER_CLIENT_VALUES, max_size=max_size),
        st.dictionaries(ip_entities, _IP_VALUES, max_size=1),
    )


FEW_NAMES = ["a", "b", "<default>", "a,b", "é"]

crowded_entities = st.one_of(
    st.builds(lambda n: ClientQuotaEntity({USER: n}), st.sampled_from([None, *FEW_NAMES])),
    st.builds(lambda n: ClientQuotaEntity({CLIENT_ID: n}), st.sampled_from([None, *FEW_NAMES])),
    st.builds(
        lambda u, c: ClientQuotaEntity({USER: u, CLIENT_ID: c}),
        st.sampled_from([None, *FEW_NAMES]),
        st.sampled_from([None, *FEW_NAMES]),
    ),
)
"""User and client-id entities over few names, so that several rules meet in one client."""

crowded_clients = st.tuples(st.sampled_from([*FEW_NAMES, "other", ""]), st.sampled_from([*FEW_NAMES, "other", ""]))
"""(user, client-id) pairs that those entities often match; an empty text is "none"."""
