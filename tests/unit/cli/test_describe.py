"""``kquota describe``: filters and formats."""

import csv
import io
import json
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from click.testing import CliRunner, Result
from hypothesis import given

from kquota.cli import cli
from kquota.errors import InputError, QuotaFileError
from kquota.files import QuotaFile, read_quota_file, write_yaml
from kquota.quotas import ClientQuotaEntity
from tests.kit.strategies import snapshots

QUOTAS = """\
quotas:
  - entity: {client-id: etl-2}
    values: {producer_byte_rate: 5}
  - entity: {user: alice, client-id: etl-1}
    values: {producer_byte_rate: 1, consumer_byte_rate: 10MiB}
    owner: payments
  - entity: {user: alice}
    values: {request_percentage: 12.5}
  - entity: {user: null}
    values: {request_percentage: 50}
  - entity: {user: <default>}
    values: {request_percentage: NaN}
  - entity: {ip: 10.0.0.1}
    values: {connection_creation_rate: 3}
"""


@pytest.fixture
def quotas(tmp_path: Path) -> str:
    path = tmp_path / "q.yaml"
    path.write_text(QUOTAS)
    return str(path)


def describe(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["describe", *arguments], catch_exceptions=False)


def output(*arguments: str) -> str:
    result = describe(*arguments)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout_bytes.decode()  # `stdout` hides how lines end


@pytest.mark.parametrize(
    "arguments, found",
    [
        ("", "user=%3Cdefault%3E user=alice user=alice,client-id=etl-1 user=<default> client-id=etl-2 ip=10.0.0.1"),
        ("--name user=alice", "user=alice user=alice,client-id=etl-1"),
        ("--name user=alice --strict", "user=alice"),
        ("--name user=alice --any client-id", "user=alice,client-id=etl-1"),
        ("--default user", "user=<default>"),
        ("--name user=<default>", "user=%3Cdefault%3E"),
        ("--any client-id", "user=alice,client-id=etl-1 client-id=etl-2"),
        ("--any client-id --strict", "client-id=etl-2"),
        ("--any ip", "ip=10.0.0.1"),
        ("--prefix client-id=etl-", "user=alice,client-id=etl-1 client-id=etl-2"),
        ("--prefix client-id=etl- --strict", "client-id=etl-2"),
        ("--prefix user=al --prefix client-id=etl", "user=alice,client-id=etl-1"),
        ("--prefix user=", "user=%3Cdefault%3E user=alice user=alice,client-id=etl-1"),
        ("--name user=bob", ""),
        ("--strict", ""),
    ],
)
def test_filters(quotas: str, arguments: str, found: str) -> None:
    """Sorted by entity; a prefix is of names, which the default is not."""
    text = output("--quotas", quotas, *arguments.split(), "--format", "jsonl")
    entities = [ClientQuotaEntity(json.loads(line)["entity"]).to_text() for line in text.splitlines()]
    assert entities == found.split()


def test_text_lines_up(quotas: str) -> None:
    assert (
        output("--quotas", quotas)
        == """\
user=%3Cdefault%3E          request_percentage        NaN       percent of one thread
user=alice                  request_percentage        12.5      percent of one thread
user=alice,client-id=etl-1  consumer_byte_rate        10485760  bytes/second
                            producer_byte_rate        1         bytes/second
user=<default>              request_percentage        50        percent of one thread
client-id=etl-2             producer_byte_rate        5         bytes/second
ip=10.0.0.1                 connection_creation_rate  3         connections/second
"""
    )


def test_csv(quotas: str) -> None:
    text = output("--quotas", quotas, "--name", "user=alice", "--format", "csv")
    assert list(csv.reader(io.StringIO(text, newline=""))) == [
        ["entity", "key", "value"],
        ["user=alice", "request_percentage", "12.5"],
        ["user=alice,client-id=etl-1", "consumer_byte_rate", "10485760"],
        ["user=alice,client-id=etl-1", "producer_byte_rate", "1"],
    ]
    assert text.count("\r\n") == 4


@pytest.mark.parametrize(
    "form, empty",
    [("text", ""), ("json", "[]\n"), ("jsonl", ""), ("yaml", "quotas: []\n"), ("csv", "entity,key,value\r\n")],
)
def test_no_match_is_no_error(quotas: str, form: str, empty: str) -> None:
    assert output("--quotas", quotas, "--name", "user=nobody", "--format", form) == empty


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_what_it_prints_is_a_quota_file(quotas: str, form: str) -> None:
    text = output("--quotas", quotas, "--format", form)
    printed = read_quota_file(text, name=f"q.{form}")
    original = read_quota_file(QUOTAS, name="q.yaml")
    assert write_yaml(printed) == write_yaml(original)
    assert [e.owner for e in printed.entries if e.owner] == ["payments"]


@given(snapshots())
def test_describing_everything_is_the_file_again(snapshot: dict[ClientQuotaEntity, dict[str, float]]) -> None:
    text = write_yaml(QuotaFile.of(snapshot))
    with NamedTemporaryFile(suffix=".yaml") as file:
        file.write(text.encode())
        file.flush()
        assert output("--quotas", file.name, "--format", "yaml") == text


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--any", "group"], "Unsupported entity type group"),
        (["--name", "user=a", "--any", "user"], "Entity type user cannot appear more than once in the filter."),
        (["--any", "ip", "--any", "user"], "Invalid entity filter component combination."),
        (["--any", ""], "Invalid empty entity type."),
        (["--prefix", "user"], "--prefix user: write it as type=name"),
    ],
)
def test_filters_that_kafka_refuses(quotas: str, arguments: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        describe("--quotas", quotas, *arguments)
    assert message in str(caught.value)


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the quotas: No such file"):
        describe("--quotas", str(tmp_path / "none"))
    with pytest.raises(InputError, match="cannot read the quotas: Is a directory"):
        describe("--quotas", str(tmp_path))
    (tmp_path / "bad.yaml").write_text("- entity: {user: a}\n  values: {x: 1}\n")
    with pytest.raises(QuotaFileError, match=r"bad\.yaml:2:\d+: \[0\]\.values\.x: there is no quota 'x'"):
        describe("--quotas", str(tmp_path / "bad.yaml"))
