"""``kquota resolve``: one client or a file of them, in every format."""

import csv
import io
import json
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from kquota.cli import cli
from kquota.errors import InputError
from tests.kit.strategies import any_names

QUOTAS = """\
quotas:
  - entity: {user: alice, client-id: etl}
    values: {producer_byte_rate: 1048576}
  - entity: {user: alice}
    values: {producer_byte_rate: 2097152, request_percentage: 12.5}
  - entity: {user: null}
    values: {request_percentage: 50}
  - entity: {client-id: null}
    values: {producer_byte_rate: 5MB, controller_mutation_rate: NaN}
  - entity: {ip: 10.0.0.7}
    values: {connection_creation_rate: 5}
  - entity: {ip: null}
    values: {connection_creation_rate: 20}
"""


@pytest.fixture
def quotas(tmp_path: Path) -> str:
    path = tmp_path / "q.yaml"
    path.write_text(QUOTAS)
    return str(path)


def resolve(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["resolve", *arguments], input=stdin, catch_exceptions=False)


def output(*arguments: str, stdin: bytes | None = None) -> str:
    result = resolve(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout_bytes.decode()  # `stdout` hides how lines end


UNLIMITED: dict[str, Any] = {"value": None, "source": None, "level": None, "meter": None, "overridden": []}

PAIR = {"user": "alice", "client-id": "etl"}

ANSWER: dict[str, Any] = {
    "client": PAIR,
    "quotas": {
        "producer_byte_rate": {
            "value": 1048576,
            "source": PAIR,
            "level": 1,
            "meter": PAIR,
            "overridden": [
                {"source": {"user": "alice"}, "level": 3, "value": 2097152},
                {"source": {"client-id": None}, "level": 8, "value": 5000000},
                {"source": "static", "level": 9, "value": 77},
            ],
        },
        "consumer_byte_rate": UNLIMITED,
        "request_percentage": {
            "value": 12.5,
            "source": {"user": "alice"},
            "level": 3,
            "meter": {"user": "alice"},
            "overridden": [{"source": {"user": None}, "level": 6, "value": 50}],
        },
        "controller_mutation_rate": {
            "value": "NaN",
            "source": {"client-id": None},
            "level": 8,
            "meter": {"client-id": "etl"},
            "overridden": [],
        },
    },
}

ALICE = ("--name", "user=alice", "--name", "client-id=etl", "-D", "quota.producer.default=77")


def test_json_is_the_contract(quotas: str) -> None:
    assert json.loads(output("--quotas", quotas, *ALICE, "--format", "json")) == [ANSWER]
    text = output("--quotas", quotas, *ALICE, "--format", "jsonl")
    assert text.count("\n") == 1
    assert json.loads(text) == ANSWER
    assert '"value": 1048576,' in text, "whole numbers have no point"


def test_yaml_says_the_same(quotas: str) -> None:
    assert yaml.safe_load(output("--quotas", quotas, *ALICE, "--format", "yaml")) == [ANSWER]


def test_static_defaults_come_from_the_brokers_settings_too(quotas: str, tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("quota.consumer.default=99\n")
    text = output("--quotas", quotas, "--name", "client-id=x", "--broker-config", str(path), "--format", "json")
    assert json.loads(text)[0]["quotas"]["consumer_byte_rate"] == {
        "value": 99, "source": "static", "level": 9, "meter": {"client-id": "x"}, "overridden": []
    }  # fmt: skip


def test_an_ip_adds_its_key(quotas: str) -> None:
    (answer,) = json.loads(output("--quotas", quotas, "--name", "ip=10.0.0.7", "--format", "json"))
    assert answer["client"] == {"user": "", "client-id": "", "ip": "10.0.0.7"}
    assert answer["quotas"]["connection_creation_rate"] == {
        "value": 5,
        "source": {"ip": "10.0.0.7"},
        "level": 1,
        "meter": {"ip": "10.0.0.7"},
        "overridden": [{"source": {"ip": None}, "level": 2, "value": 20}],
    }


def test_csv_has_a_row_for_each_key(quotas: str) -> None:
    text = output("--quotas", quotas, *ALICE, "--format", "csv")
    assert text.startswith("user,client-id,ip,key,value,source,level,meter,overridden\r\n")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["key"] for row in rows] == list(ANSWER["quotas"])
    assert rows[0] == {
        "user": "alice",
        "client-id": "etl",
        "ip": "",
        "key": "producer_byte_rate",
        "value": "1048576",
        "source": "user=alice,client-id=etl",
        "level": "1",
        "meter": "user=alice,client-id=etl",
        "overridden": "3:user=alice:2097152 8:client-id=<default>:5000000 9:static:77",
    }
    assert rows[1]["value"] == rows[1]["source"] == rows[1]["level"] == rows[1]["meter"] == ""
    assert rows[3]["value"] == "NaN"


def test_text_lines_up(quotas: str) -> None:
    assert output("--quotas", quotas, *ALICE) == (
        "user=alice,client-id=etl\n"
        "  producer_byte_rate        1048576 bytes/second        level 1: user and client-id"
        "  set on user=alice,client-id=etl  counted on user=alice,client-id=etl\n"
        "  consumer_byte_rate        no limit\n"
        "  request_percentage        12.5 percent of one thread  level 3: user              "
        "  set on user=alice                counted on user=alice\n"
        "  controller_mutation_rate  NaN partitions/second       level 8: default client-id "
        "  set on client-id=<default>       counted on client-id=etl\n"
    )


def test_explain_lists_every_candidate_and_says_whose_usage_adds_up(quotas: str) -> None:
    assert (
        output("--quotas", quotas, *ALICE, "--name", "ip=10.0.0.7", "--explain")
        == """\
user=alice,client-id=etl,ip=10.0.0.7
  producer_byte_rate: 1048576 bytes/second
    binds       level 1: user and client-id     user=alice,client-id=etl  1048576 bytes/second
    overridden  level 3: user                   user=alice                2097152 bytes/second
    overridden  level 8: default client-id      client-id=<default>       5000000 bytes/second
    overridden  level 9: static broker default  static                    77 bytes/second
    counted on user=alice,client-id=etl: used by client-id etl of user alice alone
  consumer_byte_rate: no limit
    no rule binds this client
  request_percentage: 12.5 percent of one thread
    binds       level 3: user          user=alice      12.5 percent of one thread
    overridden  level 6: default user  user=<default>  50 percent of one thread
    counted on user=alice: shared by all clients of user alice without a better match
  controller_mutation_rate: NaN partitions/second
    binds  level 8: default client-id  client-id=<default>  NaN partitions/second
    counted on client-id=etl: shared by client-id etl of all users without a better match
  connection_creation_rate: 5 connections/second
    binds       level 1: ip          ip=10.0.0.7   5 connections/second
    overridden  level 2: default ip  ip=<default>  20 connections/second
    counted on ip=10.0.0.7: shared by all connections from 10.0.0.7
"""
    )


@pytest.mark.parametrize(
    "names, title",
    [
        (["user=alice"], "user=alice (no client-id)"),
        (["client-id=etl"], "client-id=etl (no user)"),
        (["ip=10.0.0.7"], "ip=10.0.0.7 (no user, no client-id)"),
        (["user="], "a client without a name (no user, no client-id)"),
        (["user=a,b=c"], "user=a%2Cb%3Dc (no client-id)"),
    ],
)
def test_what_is_left_out_the_client_does_not_have(quotas: str, names: list[str], title: str) -> None:
    """A name may hold commas and equals signs."""
    arguments = [part for name in names for part in ("--name", name)]
    assert output("--quotas", quotas, *arguments).splitlines()[0] == title


CLIENTS = b'user,client-id\r\nalice,etl\r\n"a,""b\nc",\r\n\r\n,x\r\n'


@pytest.mark.parametrize("source", ["file", "stdin"])
@pytest.mark.parametrize("form", ["json", "jsonl", "yaml"])
def test_clients_are_answered_in_the_order_asked(quotas: str, tmp_path: Path, source: str, form: str) -> None:
    """RFC 4180 quoting; an empty cell is none."""
    (tmp_path / "clients.csv").write_bytes(CLIENTS)
    path = str(tmp_path / "clients.csv") if source == "file" else "-"
    text = output("--quotas", quotas, "--from", path, "--format", form, stdin=CLIENTS)
    answers = [json.loads(line) for line in text.splitlines()] if form == "jsonl" else yaml.safe_load(text)
    assert [answer["client"] for answer in answers] == [
        {"user": "alice", "client-id": "etl"},
        {"user": 'a,"b\nc', "client-id": ""},
        {"user": "", "client-id": "x"},
    ]
    assert answers[2]["quotas"]["producer_byte_rate"]["value"] == 5000000


@pytest.mark.parametrize(
    "text, clients",
    [
        (b"user,client-id\n", []),
        (b"\xef\xbb\xbfclient_id,user\nc,u\n", [{"user": "u", "client-id": "c"}]),
        (b"ip,user,client-id\n1.1.1.1,u,c\n,u,c\n", [
            {"user": "u", "client-id": "c", "ip": "1.1.1.1"}, {"user": "u", "client-id": "c", "ip": ""}
        ]),
    ],
)  # fmt: skip
def test_columns_may_stand_in_any_order(quotas: str, text: bytes, clients: list[dict[str, str]]) -> None:
    answers = json.loads(output("--quotas", quotas, "--from", "-", "--format", "json", stdin=text))
    assert [answer["client"] for answer in answers] == clients
    assert [("connection_creation_rate" in a["quotas"]) for a in answers] == [bool(c.get("ip")) for c in clients]


@pytest.mark.parametrize("form, empty", [("json", "[]\n"), ("jsonl", ""), ("yaml", "[]\n"), ("text", "")])
def test_no_clients_no_answers(quotas: str, form: str, empty: str) -> None:
    assert output("--quotas", quotas, "--from", "-", "--format", form, stdin=b"user,client-id\n") == empty


@pytest.mark.parametrize(
    "text, message",
    [
        (b"", "<stdin>: the file is empty; it must begin with the header user,client-id or user,client-id,ip"),
        (b"alice,etl\n", "<stdin>:1: the header is alice,etl; it must be user,client-id or user,client-id,ip"),
        (b"user,client-id,user\n", "<stdin>:1: the header is user,client-id,user"),
        (b"user,client-id\na,b\na\n", "<stdin>:3: there are 1 cells, the header has 2"),
        (b'user,client-id\n"a\nb",c\na,b,c\n', "<stdin>:4: there are 3 cells, the header has 2"),
        (b'user,client-id\n"a"b,c\n', "<stdin>:2: this is not CSV"),
        (b'user,client-id\n"a', "this is not CSV: unexpected end of data"),
        (b"user,client-id\na,b\n\xff,b\n", "byte 0xff is not UTF-8"),
    ],
)
def test_bad_rows_are_named_with_their_line(quotas: str, text: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve("--quotas", quotas, "--from", "-", stdin=text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "Give the client with --name, or a file of clients with --from."),
        (["--name", "user=a", "--from", "x"], "Give the client with --name, or a file of clients with --from."),
        (["--format", "xml", "--name", "user=a"], "'xml' is not one of"),
    ],
)
def test_wrong_usage(quotas: str, arguments: list[str], message: str) -> None:
    result = resolve("--quotas", quotas, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--name", "alice"], "--name alice: write it as type=name, such as --name user=alice"),
        (["--name", "=alice"], "write it as type=name"),
        (["--name", "group=g"], "there is no entity type group (there are user, client-id, ip)"),
        (["--name", "user=a", "--name", "user=b"], "the user is given twice"),
        (["--name", "user=\udcff"], "not valid text"),
        (["--from", "/no/such"], "cannot read the clients: No such file or directory"),
        (["--name", "user=a", "-D", "quota.window.nun=1"], "did you mean quota.window.num?"),
    ],
)
def test_input_that_cannot_be_used(quotas: str, arguments: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve("--quotas", quotas, *arguments)
    assert message in str(caught.value)


def test_standard_input_is_one_thing_only() -> None:
    assert "cannot be both" in resolve("--quotas", "-", "--from", "-").stderr
    assert output("--quotas", "-", "--name", "user=alice", stdin=QUOTAS.encode()).startswith("user=alice")


@given(st.lists(st.tuples(any_names, any_names), max_size=4))
def test_any_client_survives_the_way_through_csv(clients: list[tuple[str, str]]) -> None:
    """What is written as RFC 4180 comes back as it was (a bare carriage return inside quotes too)."""
    clients = [(user.replace("\x00", ""), client_id.replace("\x00", "")) for user, client_id in clients]
    table = io.StringIO(newline="")
    writer = csv.writer(table, quoting=csv.QUOTE_ALL)
    writer.writerows([("user", "client-id"), *clients])
    with NamedTemporaryFile(suffix=".json") as quotas:
        quotas.write(b"[]")
        quotas.flush()
        text = output("--quotas", quotas.name, "--from", "-", "--format", "jsonl", stdin=table.getvalue().encode())
    answers = [json.loads(line)["client"] for line in text.split("\n")[:-1]]
    assert answers == [{"user": user, "client-id": client_id} for user, client_id in clients]
