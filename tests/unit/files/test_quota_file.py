"""Quota files: read with every problem named, written so that reading gives the same back."""

import json
import math
from collections.abc import Callable

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from kquota.errors import QuotaFileError
from kquota.files import QuotaFile, QuotaFileEntry, dump_json, read_quota_file, write_json, write_yaml
from kquota.quotas import CLIENT_ID, IP, KAFKA, USER, ClientQuotaEntity
from tests.kit.strategies import AWKWARD_NAMES, any_names, legal_names, snapshots

ALICE = ClientQuotaEntity({USER: "alice"})


def read(text: str | bytes, name: str = "q.yaml") -> QuotaFile:
    return read_quota_file(text, name=name)


def problems(text: str | bytes, name: str = "q.yaml") -> list[tuple[int | None, str, str]]:
    """(line, path, reason) of everything that is wrong."""
    with pytest.raises(QuotaFileError) as caught:
        read(text, name)
    assert caught.value.exit_code == 2
    assert str(caught.value).startswith(name)
    return [(p.line, p.where, p.reason) for p in caught.value.problems]


def problem(text: str | bytes, name: str = "q.yaml") -> tuple[int | None, str, str]:
    (only,) = problems(text, name)
    return only


EXAMPLE = """\
quotas:                                   # a comment
  - entity: {user: alice, client-id: etl}
    values: {producer_byte_rate: 1048576, consumer_byte_rate: 10MiB}
    owner: payments
    labels: {tier: gold}
  - entity:
      user: null
    values:
      request_percentage: 12.5
  - entity: {ip: 10.0.0.1}
    values: {connection_creation_rate: 1e2}
"""


def test_the_documented_example() -> None:
    assert read(EXAMPLE).entries == (
        QuotaFileEntry(
            ClientQuotaEntity({USER: "alice", CLIENT_ID: "etl"}),
            {"producer_byte_rate": 1048576.0, "consumer_byte_rate": 10485760.0},
            "payments",
            {"tier": "gold"},
        ),
        QuotaFileEntry(ClientQuotaEntity({USER: None}), {"request_percentage": 12.5}),
        QuotaFileEntry(ClientQuotaEntity({IP: "10.0.0.1"}), {"connection_creation_rate": 100.0}),
    )
    assert [entry.line for entry in read(EXAMPLE).entries] == [2, 6, 10]
    assert read(EXAMPLE).snapshot()[ClientQuotaEntity({USER: None})] == {"request_percentage": 12.5}


def test_a_bare_list_is_accepted() -> None:
    assert read("- entity: {user: alice}\n  values: {producer_byte_rate: 1}\n").snapshot() == {
        ALICE: {"producer_byte_rate": 1.0}
    }


@pytest.mark.parametrize(
    "text, name", [("quotas: []", "q.yaml"), ("[]", "q.yaml"), ("[]", "q.json"), ('{"quotas": []}', "q")]
)
def test_no_quotas_are_quotas_too(text: str, name: str) -> None:
    assert read(text, name) == QuotaFile(())


JSON = (
    '[{"entity": {"user": "a\\ud83d\\ude00\\u0085\\/", "client-id": null},\r\n'
    '\t"values": {"producer_byte_rate": "10MiB"}}]'
)


@pytest.mark.parametrize("name", ["q.json", "q", "dump.txt"])
def test_json_with_what_yaml_would_trip_over(name: str) -> None:
    """Surrogate pairs, tabs, an escaped slash; also recognised without the extension."""
    (entry,) = read(JSON, name).entries
    assert entry.entity == ClientQuotaEntity({USER: "a😀\x85/", CLIENT_ID: None})
    assert entry.values == {"producer_byte_rate": 10485760.0}


def test_the_extension_decides_the_format() -> None:
    flow = '[{"entity": {user: alice}, values: {producer_byte_rate: 1}}]'
    assert read(flow, "q.yaml") == read(flow, "q")
    assert problem(flow, "q.json")[2].startswith("this is not JSON: ")
    assert read_quota_file(JSON, name="q.yaml", format="json") == read(JSON, "q.json")


@pytest.mark.parametrize(
    "written, name",
    [
        ("yes", "yes"),
        ("0123", "0123"),
        ("1e3", "1e3"),
        ("2024-01-01", "2024-01-01"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        (".inf", ".inf"),
        ("<default>", "<default>"),
        ("=", "="),
        ("'null'", "null"),
        ('"~"', "~"),
        ("!!str null", "null"),
        ("!custom x", "x"),
        ("&anchor x", "x"),
        ("null", None),
        ("Null", None),
        ("NULL", None),
        ("~", None),
        ("!!null ''", None),
    ],
)
def test_yaml_names_keep_their_literal_text(written: str, name: str | None) -> None:
    """Only YAML's null is the default; tags and anchors do no harm."""
    (entry,) = read(f"- entity: {{user: {written}}}\n  values: {{producer_byte_rate: 1}}").entries
    assert entry.entity == ClientQuotaEntity({USER: name})


def test_an_alias_stands_for_what_it_names() -> None:
    text = """\
- entity: {user: a}
  values: &gold {producer_byte_rate: 1}
- entity: {user: b}
  values: *gold
"""
    assert [e.values for e in read(text).entries] == [{"producer_byte_rate": 1.0}] * 2


VALUES = "\n  values: {producer_byte_rate: 1}"
A_RATE = "- entity: {user: a}\n  values:\n    producer_byte_rate: "
LOOKS_LIKE = "a quota file looks like this"


@pytest.mark.parametrize(
    "text, line, where, reason",
    [
        ("", None, "", LOOKS_LIKE),
        (" \n\n", None, "", LOOKS_LIKE),
        ("\ufeff", None, "", LOOKS_LIKE),
        ("# nothing\n", None, "", LOOKS_LIKE),
        ("just text", 1, "", LOOKS_LIKE),
        ("{}", 1, "", LOOKS_LIKE),
        ("entity: {user: a}" + VALUES.replace("  ", ""), 1, "", "an entry must stand in a list"),
        ("quotas:", 1, "quotas", "a list of entries is expected, not nothing; write [] for none"),
        ("quotas: {a: 1}", 1, "quotas", "not a mapping"),
        ("quota: []\nquotas: []", 1, "", "there is no field 'quota'; did you mean quotas?"),
        ("- 5", 1, "[0]", "not '5'"),
        ("- [a]", 1, "[0]", "not a list"),
        ("- entity: {user: a}", 1, "[0]", "values is missing"),
        ("- values: {producer_byte_rate: 1}", 1, "[0]", "entity is missing"),
        ("- entity: {user: a}\n  values: {}", 2, "[0].values", "there are no values; leave the entry out"),
        ("- entity: {user: a}\n  values:", 2, "[0].values", "not nothing"),
        ("- entity: {user: a}\n  valeus: {}" + VALUES, 2, "[0]", "there is no field 'valeus'; did you mean values?"),
        ("- entity: {}" + VALUES, 1, "[0].entity", "Invalid empty client quota entity"),
        ("- entity: alice" + VALUES, 1, "[0].entity", "a mapping of type to name, such as {user: alice} is expected"),
        ("- entity: {users: a}" + VALUES, 1, "[0].entity", "entity type: users (there are user, client-id, ip)"),
        ("- entity: {user: }" + VALUES, 1, "[0].entity.user", "write null for the default entity, or quote the name"),
        ("- entity:\n    user:" + VALUES, 2, "[0].entity.user", "the name is missing"),
        ("- entity: {user: ''}" + VALUES, 1, "[0].entity", "Empty user not supported; leave the type out, or"),
        ("- entity: {user: [a]}" + VALUES, 1, "[0].entity.user", "a name is expected, not a list"),
        ("- entity: {[a]: b}" + VALUES, 1, "[0].entity", "a key is text, not a list"),
        ("- entity: {user: a, ip: 1.1.1.1}" + VALUES, 1, "[0].entity", "IP entity shouldnot be combined"),
        ("- entity: {ip: a b}\n  values: {connection_creation_rate: 1}", 1, "[0].entity", "a b is not a valid IP"),
        ("- entity: {user: a, user: b}" + VALUES, 1, "[0].entity", "user appears twice, first on line 1"),
        ("- entity: {user: a}" + VALUES + VALUES, 3, "[0]", "values appears twice, first on line 2"),
        (
            "- entity: {user: a}\n  values: {producer_byte_rat: 1}",
            2,
            "[0].values.producer_byte_rat",
            "there is no quota 'producer_byte_rat'; did you mean producer_byte_rate?",
        ),
        ("- entity: {user: a}\n  values: {x: 1}", 2, "[0].values.x", "there is no quota 'x' (there are producer_byte"),
        (
            "- entity: {ip: 1.1.1.1}" + VALUES,
            2,
            "[0].values.producer_byte_rate",
            "producer_byte_rate is a quota of client-id or user or user with client-id, not of ip",
        ),
        (
            "- entity: {user: a}\n  values: {connection_creation_rate: 1}",
            2,
            "[0].values.connection_creation_rate",
            "connection_creation_rate is a quota of ip, not of user",
        ),
        *[
            (f"{A_RATE}{value}", 3, "[0].values.producer_byte_rate", reason)
            for value, reason in [
                ("-1", "must be greater than 0"),
                ("0", "must be greater than 0"),
                ("1.5", "cannot be a fractional value"),
                ("Infinity", "too large for a LONG"),
                ("yes", "'yes' is not a number; write digits, or a size such as 10MiB"),
                ("0x10", "is not a number"),
                ("[1]", "a number is expected, not a list"),
                ("", "the value is missing; leave the key out where there is no limit"),
                ("null", "the value is missing"),
            ]
        ],
        ("- entity: {user: a}\n  owner: [x]" + VALUES, 2, "[0].owner", "text is expected, not a list"),
        ("- entity: {user: a}\n  owner:" + VALUES, 2, "[0].owner", "the text is missing; leave the field out"),
        ("- entity: {user: a}\n  labels: x" + VALUES, 2, "[0].labels", "a mapping of label to text is expected"),
        ("- entity: {user: a}\n  labels: {a: {}}" + VALUES, 2, "[0].labels.a", "text is expected, not a mapping"),
        ("quotas: []\n---\nquotas: []\n", 2, "", "a second document begins here"),
        ("a: [", 1, "", "this is not YAML: while parsing a flow node did not find expected node content"),
        ("quotas:\n\t- a", 2, "", "a tab cannot indent, use spaces"),
        ("a: 1\nb: \x07", 2, "", "YAML has no character U+0007"),
        ("- *nobody", 1, "", "nothing is called *nobody so far"),
        ("&a [*a]", 1, "", "nothing is called *a so far"),
    ],
)  # fmt: skip
def test_yaml_that_is_refused(text: str, line: int | None, where: str, reason: str) -> None:
    """One message for one mistake, with its line, its path and what to do."""
    found = problem(text)
    assert found[:2] == (line, where)
    assert reason in found[2]


def one(entity: str = '{"user": "a"}', values: str = '{"producer_byte_rate": 1}', more: str = "") -> str:
    return f'[\n {{"entity": {entity},\n  "values": {values}{more}}}\n]'


@pytest.mark.parametrize(
    "text, line, where, reason",
    [
        ("{", 1, "", "this is not JSON: Expecting property name"),
        ('[\n{"entity": }]', 2, "", "this is not JSON: Expecting value"),
        ("[]\n[]", 2, "", "this is not JSON: Extra data"),
        ("'a'", 1, "", "this is not JSON"),
        ('["a\tb"]', 1, "", "this is not JSON: Invalid control character"),
        (one('{"user": 5}'), 2, "[0].entity.user", 'a name is text: write "5"'),
        (one('{"user": true}'), 2, "[0].entity.user", 'a name is text: write "true"'),
        (one('{"user": ""}'), 2, "[0].entity", "Empty user not supported"),
        (one('{"user": "a", "user": "b"}'), 2, "[0].entity", "user appears twice, first on line 2"),
        (one('{"user": "\\ud800"}'), 2, "[0].entity", "half a surrogate pair"),
        (one(values='{"producer_byte_rate": NaN}'), 3, "", 'JSON has no NaN; write it as a string: "NaN"'),
        (one('{"user": "NaN"}', '{"request_percentage": -Infinity}'), 3, "", "JSON has no -Infinity"),
        (one(values='{"producer_byte_rate": true}'), 3, "[0].values.producer_byte_rate", "'true' is not a number"),
        (one(values='{"producer_byte_rate": null}'), 3, "[0].values.producer_byte_rate", "the value is missing"),
        (one(more=',\n"owner": 5'), 4, "[0].owner", 'text is expected: write "5"'),
        ("5", 1, "", LOOKS_LIKE),
        ("null", 1, "", LOOKS_LIKE),
    ],
)
def test_json_that_is_refused(text: str, line: int | None, where: str, reason: str) -> None:
    """JSON has typed text: a number is no name."""
    found = problem(text, "q.json")
    assert found[:2] == (line, where)
    assert reason in found[2]


def test_an_entity_that_stands_twice_names_both_lines() -> None:
    text = "quotas:\n- entity: {user: a, client-id: b}" + VALUES + "\n- entity: {client-id: b, user: a}" + VALUES
    assert problem(text) == (4, "quotas[1]", "user=a,client-id=b is on line 2 already; put its values together")


def test_what_is_not_utf_8_text_is_refused() -> None:
    assert problem(b"quotas: []\n# caf\xe9\n") == (2, "", "byte 0xe9 is not UTF-8; save the file as UTF-8")
    assert problem("[]\n".encode("utf-16"))[2].startswith("byte 0xff is not UTF-8")
    assert problem(b"quotas: []\n\x00") == (2, "", "there is a NUL byte: this is not a text file")
    assert read(b"\xef\xbb\xbfquotas: []\n") == QuotaFile(())


@pytest.mark.parametrize(
    "text, name",
    [
        ("[" * 100_000, "q.yaml"),
        ("- " * 100_000, "q.yaml"),
        ("{a: " * 100_000, "q.yaml"),
        ("[" * 100_000, "q.json"),
        ("[" * 60 + "]" * 60, "q.json"),
    ],
)
def test_deep_nesting_is_refused_and_not_followed(text: str, name: str) -> None:
    """Recursing for it would end the process."""
    assert problem(text, name)[2] == "this is nested too deeply to be a quota file"


def test_aliases_of_aliases_do_not_multiply() -> None:
    laughs = "\n".join(f"- &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 'lol'}]" for i in range(40))
    assert {reason for _, _, reason in problems(laughs)} == {"an entry with entity and values is expected, not a list"}


def test_all_problems_are_reported_together_in_the_order_of_the_file() -> None:
    text = """\
quotas:
  - entity: {user: }
    values: {producer_byte_rat: 1, connection_creation_rate: 4, consumer_byte_rate: -1}
    foo: 3
  - entity: {user: a, user: b}
    values: {producer_byte_rate: 1.5}
extra: 1
"""
    assert [(line, where) for line, where, _ in problems(text)] == [
        (2, "quotas[0].entity.user"),
        (3, "quotas[0].values.producer_byte_rat"),
        (3, "quotas[0].values.consumer_byte_rate"),
        (4, "quotas[0]"),
        (5, "quotas[1].entity"),
        (6, "quotas[1].values.producer_byte_rate"),
        (7, ""),
    ]


def test_the_message_shows_the_first_problems_and_counts_the_others() -> None:
    with pytest.raises(QuotaFileError) as caught:
        read("\n".join(["- 5"] * 100))
    shown = str(caught.value).splitlines()
    assert len(caught.value.problems) == 100
    assert shown[0] == "q.yaml:1:3: [0]: an entry with entity and values is expected, not '5'"
    assert shown[-1] == "q.yaml: ... and 80 more problems"
    assert len(shown) == 21
    error = caught.value
    assert (error.path, error.line, error.where) == ("q.yaml", 1, "[0]")
    assert error.reason.startswith("an entry")


@pytest.mark.parametrize("host", ["broker.example", "localhost", "a_b-c.d1", "127.1", "::1", "x."])
def test_host_names_are_left_to_the_broker(host: str) -> None:
    text = f"- entity: {{ip: '{host}'}}\n  values: {{connection_creation_rate: 1}}"
    assert read(text).entries[0].entity == ClientQuotaEntity({IP: host})


@pytest.mark.parametrize("host", ["1.2.3.4.5", "a b", "-a", "a..b", "x" * 64, "a/b", "300.1.1.1"])
def test_what_no_resolver_could_know_is_refused(host: str) -> None:
    text = f"- entity: {{ip: '{host}'}}\n  values: {{connection_creation_rate: 1}}"
    assert problem(text)[2] == f"{host} is not a valid IP or resolvable host."


def test_a_registered_type_is_read() -> None:
    model = KAFKA.with_entity_type("group", keys=["producer_byte_rate"])
    text = "- entity: {group: g}" + VALUES
    assert read_quota_file(text, name="q.yaml", model=model).snapshot() == {
        ClientQuotaEntity({"group": "g"}): {"producer_byte_rate": 1.0}
    }


def test_yaml_is_pleasant_to_read() -> None:
    file = QuotaFile(
        (
            QuotaFileEntry(ClientQuotaEntity({USER: None}), {"request_percentage": 1e-7}),
            QuotaFileEntry(
                ClientQuotaEntity({CLIENT_ID: "etl", USER: "O=A client"}),
                {"producer_byte_rate": 2.0**63, "consumer_byte_rate": 1e6},
                "payments",
                {"tier": "gold", "cost centre": "0123"},
            ),
            QuotaFileEntry(ClientQuotaEntity({CLIENT_ID: "yes"}), {"request_percentage": math.inf}),
        )
    )
    assert (
        write_yaml(file)
        == """\
quotas:
  - entity: {user: "O=A client", client-id: etl}
    values: {consumer_byte_rate: 1000000, producer_byte_rate: 9223372036854775808}
    owner: payments
    labels: {"cost centre": "0123", tier: gold}
  - entity: {user: null}
    values: {request_percentage: 0.0000001}
  - entity: {client-id: "yes"}
    values: {request_percentage: "Infinity"}
"""
    )
    assert write_yaml(QuotaFile(())) == "quotas: []\n"


def test_yaml_by_owner_has_the_entries_of_each_together() -> None:
    """Under the owner's name, which stays a comment whatever it is; comments of entries stay at their entries."""
    owners = {"a": "search", "b": None, "c": "pay\nments", "d": "search"}
    file = QuotaFile(
        tuple(
            QuotaFileEntry(ClientQuotaEntity({USER: user}), {"request_percentage": 1.0}, owner)
            for user, owner in reversed(owners.items())
        )
    )
    text = write_yaml(file, {ClientQuotaEntity({USER: "d"}): ["why"]}, by_owner=True)
    assert (
        text
        == """\
quotas:
  # owner pay ments
  - entity: {user: c}
    values: {request_percentage: 1}
    owner: "pay\\nments"

  # owner search
  - entity: {user: a}
    values: {request_percentage: 1}
    owner: search
  # why
  - entity: {user: d}
    values: {request_percentage: 1}
    owner: search

  # without an owner
  - entity: {user: b}
    values: {request_percentage: 1}
"""
    )
    again = read_quota_file(text, name="q.yaml").entries
    assert {one.entity: one for one in again} == {one.entity: one for one in file.entries}
    assert write_yaml(QuotaFile(()), by_owner=True) == "quotas: []\n"


def test_json_has_one_line_for_each_entity() -> None:
    file = QuotaFile.of(
        {
            ClientQuotaEntity({USER: "b"}): {"producer_byte_rate": 1e22 / 1e4, "consumer_byte_rate": 5.0},
            ClientQuotaEntity({CLIENT_ID: None, USER: "a"}): {"request_percentage": math.nan},
        }
    )
    assert (
        write_json(file)
        == """\
[
  {"entity": {"user": "a", "client-id": null}, "values": {"request_percentage": "NaN"}},
  {"entity": {"user": "b"}, "values": {"consumer_byte_rate": 5, "producer_byte_rate": 1000000000000000000}}
]
"""
    )
    assert write_json(QuotaFile(())) == "[]\n"


FORMATS: list[tuple[str, Callable[[QuotaFile], str]]] = [("q.yaml", write_yaml), ("q.json", write_json)]

labels = st.dictionaries(any_names, any_names, max_size=3)


@pytest.mark.parametrize("name, write", FORMATS)
@given(snapshots(), st.one_of(st.none(), any_names), labels)
@example({ALICE: {"producer_byte_rate": 2.0**63}}, "", {"": "", "x" * 3000: "y", "<<": "="})
@example({ClientQuotaEntity({USER: name}): {"request_percentage": 5e-324} for name in AWKWARD_NAMES}, "null", {})
def test_what_is_written_is_read_back(
    name: str,
    write: Callable[[QuotaFile], str],
    snapshot: dict[ClientQuotaEntity, dict[str, float]],
    owner: str | None,
    labels: dict[str, str],
) -> None:
    """Every legal name and value, also as bytes; sorted, plain numbers, and again the same text."""
    file = QuotaFile(tuple(QuotaFileEntry(e, v, owner, labels) for e, v in snapshot.items()))
    text = write(file)
    again = read(text.encode(), name)
    assert [entry.entity for entry in again.entries] == sorted(snapshot, key=ClientQuotaEntity.sort_key)
    for entry in again.entries:
        assert repr(sorted(entry.values.items())) == repr(sorted(snapshot[entry.entity].items()))
        assert (entry.owner, entry.labels) == (owner, labels)
    assert write(again) == text


CODE_POINTS = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
NUMBERS = [
    "0", "-0", "+1", "1.", ".5", "1e400", "1E5", "0x10", "0o17", "0b1", "017", "1_0", "1:30", "190:20:30", ".inf",
    "-.INF", ".nan", "NaN", "Infinity", "10MiB", "12%", "2024-01-01", "2024-01-01T00:00:00Z",
]  # fmt: skip


@pytest.mark.parametrize("name, write", FORMATS)
def test_every_character_of_a_name_is_read_back(name: str, write: Callable[[QuotaFile], str]) -> None:
    """All of Unicode: in the middle of long names, and what is special to anybody also first, last and alone."""
    special = [
        chr(code) for code in (*range(0x300), *range(0x2000, 0x2070), 0x3000, 0xFEFF, 0xFFFD, 0xFFFE, 0xFFFF, 0x1FFFF)
    ]
    names = {c + more for c in special for more in ("", "a", c)} | {f"a{c}" for c in special}
    names |= {"".join(map(chr, CODE_POINTS[i : i + 5000])) for i in range(0, len(CODE_POINTS), 5000)}
    names |= {"<default>", "%3Cdefault%3E", "null", "x" * 1_000_000, " " * 2000, *NUMBERS}
    file = QuotaFile.of({ClientQuotaEntity({USER: one, CLIENT_ID: None}): {"producer_byte_rate": 1.0} for one in names})
    assert read_quota_file(write(file).encode(), name=name) == file


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", '"\\ud800"', '"\\udfff\\ud800"'])
def test_half_a_surrogate_pair_is_refused(text: str) -> None:
    """As a character or as an escape; nobody could send it."""
    quoted = text if text.startswith('"') else f'"{text}"'
    for name in ("q.yaml", "q.json"):
        line, _, reason = problem(f'[{{"entity": {{"user": {quoted}}},\n"values": {{"producer_byte_rate": 1}}}}]', name)
        assert line == 1
        assert "surrogate" in reason or "invalid Unicode character escape" in reason


@given(snapshots(), legal_names)
def test_other_readers_see_the_same(snapshot: dict[ClientQuotaEntity, dict[str, float]], owner: str) -> None:
    """PyYAML's and Python's own parsers find the names that were written, as text."""
    file = QuotaFile(tuple(QuotaFileEntry(e, v, owner) for e, v in snapshot.items()))
    wanted = [dict(e.entries) for e in sorted(snapshot, key=ClientQuotaEntity.sort_key)]
    for parsed in (yaml.safe_load(write_yaml(file))["quotas"], json.loads(write_json(file))):
        assert [entry["entity"] for entry in parsed] == wanted
        assert all(entry["owner"] == owner for entry in parsed)


def test_dump_json() -> None:
    value: object = {
        "a": [1.0, 2.5, 10**30, True, False, None, "é\n"],
        "b": {"n": math.nan, "i": -math.inf},
        "c": (1e-9, []),
    }
    text = dump_json(value)
    assert text == (
        '{"a": [1, 2.5, 1000000000000000000000000000000, true, false, null, "é\\n"], '
        '"b": {"n": "NaN", "i": "-Infinity"}, "c": [0.000000001, []]}'
    )
    with pytest.raises(TypeError):
        dump_json(object())
