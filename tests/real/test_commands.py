"""``kquota`` on a cluster: our server, and real brokers from 2.8 on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from examples.capture.broker import Broker
from kquota.cli import run
from kquota.files import read_quota_file
from kquota.quotas import ClientQuotaEntity, QuotaSnapshot
from tests.kit.kafka import VERSIONS
from tests.real.clusters import OURS, cluster, remove_all, wait_for

EXAMPLE = Path(__file__).parents[2] / "examples" / "quotas.yaml"


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(params=[OURS, *VERSIONS], scope="module")
def address(request: pytest.FixtureRequest, broker: Callable[[str], Broker]) -> Iterator[str]:
    with cluster(request.param, broker) as found:
        yield found


@pytest.fixture
def kquota(address: str, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs a command on the cluster, which has no quotas at first."""
    remove_all(address)

    def run_kquota(command: str, *arguments: str) -> Ran:
        capfd.readouterr()
        code = run([command, "--bootstrap-server", address, *arguments])
        return Ran(code, *capfd.readouterr())

    return run_kquota


def entities(**values: dict[str, float]) -> QuotaSnapshot:
    return {ClientQuotaEntity.from_text(text.replace("__", "=")): own for text, own in values.items()}


def test_one_entity_is_altered_and_described(address: str, kquota: Callable[..., Ran]) -> None:
    """Set, changed and removed in one go; a dry run changes nothing."""
    alice = ("--name", "user=alice")
    assert kquota("alter", *alice, "--add", "producer_byte_rate=1MiB", "--add", "request_percentage=12.5") == (
        0,
        "user=alice  producer_byte_rate  - -> 1048576  done\n            request_percentage  - -> 12.5     done\n",
        "",
    )
    wait_for(address, entities(user__alice={"producer_byte_rate": 1048576.0, "request_percentage": 12.5}))
    change = ("--add", "producer_byte_rate=2MiB", "--delete", "request_percentage")
    assert kquota("alter", *alice, *change, "--dry-run") == (
        0,
        (
            "user=alice  producer_byte_rate  1048576 -> 2097152  valid\n"
            "            request_percentage  12.5 -> -           valid\n"
        ),
        "",
    )
    assert kquota("describe", *alice).out == (
        "user=alice  producer_byte_rate  1048576  bytes/second\n"
        "            request_percentage  12.5     percent of one thread\n"
    )
    assert kquota("alter", *alice, *change).code == 0
    wait_for(address, entities(user__alice={"producer_byte_rate": 2097152.0}))
    assert kquota("describe", "--default", "user").out == ""


def test_a_client_is_resolved_with_what_it_overrides(address: str, kquota: Callable[..., Ran]) -> None:
    """By the server where it can, otherwise from its description: the same answer."""
    for names, value in (
        (("--name", "user=ml", "--default", "client-id"), 3e5),
        (("--name", "user=ml"), 2e6),
        (("--default", "client-id"), 5e6),
    ):
        assert kquota("alter", *names, "--add", f"consumer_byte_rate={value:.0f}").code == 0
    rates = {"user=ml,client-id=<default>": 3e5, "user=ml": 2e6, "client-id=<default>": 5e6}
    wait_for(address, {ClientQuotaEntity.from_text(text): {"consumer_byte_rate": n} for text, n in rates.items()})
    explained = kquota("resolve", "--name", "user=ml", "--name", "client-id=notebook", "--explain")
    assert explained.code == 0
    assert (
        "  consumer_byte_rate: 300000 bytes/second\n"
        "    binds       level 2: user and default client-id  user=ml,client-id=<default>  300000 bytes/second\n"
        "    overridden  level 3: user                        user=ml                      2000000 bytes/second\n"
        "    overridden  level 8: default client-id           client-id=<default>          5000000 bytes/second\n"
        "    counted on user=ml,client-id=notebook: used by client-id notebook of user ml alone\n"
    ) in explained.out
    assert "  producer_byte_rate: no limit\n" in explained.out


def test_many_clients_are_resolved_from_a_file(address: str, kquota: Callable[..., Ran], tmp_path: Path) -> None:
    """In order, whoever stands twice or has no name; an address has its own key."""
    kquota("alter", "--default", "user", "--add", "producer_byte_rate=7e6")
    kquota("alter", "--name", "ip=10.9.8.7", "--add", "connection_creation_rate=50")
    wait_for(
        address,
        {
            ClientQuotaEntity({"user": None}): {"producer_byte_rate": 7e6},
            ClientQuotaEntity({"ip": "10.9.8.7"}): {"connection_creation_rate": 50.0},
        },
    )
    clients = tmp_path / "clients.csv"
    clients.write_text('user,client-id,ip\nzoe,c,\n,,\n"a,b",c,10.9.8.7\nzoe,c,\n,c,10.0.0.1\n')
    ran = kquota("resolve", "--from", str(clients), "--format", "jsonl")
    assert ran.code == 0
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert [line["client"]["user"] for line in lines] == ["zoe", "", "a,b", "zoe", ""]
    assert [line["quotas"]["producer_byte_rate"]["value"] for line in lines] == [7e6, None, 7e6, 7e6, None]
    assert [line["quotas"].get("connection_creation_rate", {}).get("value") for line in lines] == [
        None, None, 50, None, None,
    ]  # fmt: skip


def test_a_file_is_applied_and_exported_again(address: str, kquota: Callable[..., Ran], tmp_path: Path) -> None:
    """Only what differs is sent, what the file does not name stays unless pruned, and the export is the file."""
    wanted = read_quota_file(EXAMPLE.read_bytes(), name=EXAMPLE.name).snapshot()
    kquota("alter", "--name", "user=left-alone", "--add", "producer_byte_rate=1e9")
    applied = kquota("apply", "-f", str(EXAMPLE), "--no-rollback-file")
    assert (applied.code, applied.err) == (0, f"{len(wanted)} entities changed, 0 unchanged\n")
    extra = ClientQuotaEntity({"user": "left-alone"})
    wait_for(address, {**wanted, extra: {"producer_byte_rate": 1e9}})
    again = kquota("apply", "-f", str(EXAMPLE))
    assert again == (0, "", f"0 entities changed, {len(wanted)} unchanged\n")
    pruned = kquota("apply", "-f", str(EXAMPLE), "--prune", "--format", "json", "--no-rollback-file")
    assert pruned.code == 0
    *others, change = json.loads(pruned.out)
    assert [one["entity"] for one in others] == [dict(entity.entries) for entity in wanted]
    assert {(one["status"], one["error"]) for one in others} == {("unchanged", None)}
    assert change == {
        "entity": {"user": "left-alone"},
        "status": "done",
        "error": None,
        "changes": {"producer_byte_rate": {"before": 1000000000, "after": None}},
    }
    wait_for(address, wanted)
    exported = kquota("export")
    assert read_quota_file(exported.out, name="exported.yaml").snapshot() == wanted


def test_a_plan_is_reviewed_carried_out_and_undone(address: str, kquota: Callable[..., Ran], tmp_path: Path) -> None:
    """On a cluster that kquota knows nothing about but its id; out of date it is refused."""
    file, plan, undo = tmp_path / "q.yaml", str(tmp_path / "plan.json"), str(tmp_path / "plan.rollback.json")
    kquota("alter", "--name", "user=alice", "--add", "producer_byte_rate=1000", "--add", "request_percentage=12.5")
    kquota("alter", "--name", "user=bob", "--add", "producer_byte_rate=7")
    before = entities(
        user__alice={"producer_byte_rate": 1000.0, "request_percentage": 12.5}, user__bob={"producer_byte_rate": 7.0}
    )
    wait_for(address, before)
    file.write_text(
        "- {entity: {user: alice}, values: {producer_byte_rate: 1500, request_percentage: 12.5}}\n"
        "- {entity: {user: null, client-id: 'a b'}, values: {consumer_byte_rate: 9e5}}\n"
    )
    planned = kquota("plan", "-f", str(file), "--prune", "--out", plan)
    assert planned.code == 3
    assert planned.out.endswith("1 to add, 1 to change, 1 to remove, on 3 entities\n")
    wait_for(address, before)

    kquota("alter", "--name", "user=bob", "--add", "producer_byte_rate=8")
    wait_for(address, {**before, ClientQuotaEntity({"user": "bob"}): {"producer_byte_rate": 8.0}})
    refused = kquota("apply", plan)
    assert refused.code == 1
    assert "user=bob: producer_byte_rate was 7 and is 8 now" in refused.err
    kquota("alter", "--name", "user=bob", "--add", "producer_byte_rate=7")
    wait_for(address, before)

    applied = kquota("apply", plan)
    assert (applied.code, applied.err) == (
        0,
        f"to undo this: kquota rollback {undo}\n3 entities changed, 0 unchanged\n",
    )
    after = read_quota_file(file.read_bytes(), name=file.name).snapshot()
    wait_for(address, after)
    assert kquota("plan", "-f", str(file), "--prune").code == 0
    assert kquota("apply", plan).err == "0 entities changed, 3 unchanged\n"

    undone = kquota("rollback", undo)
    assert (undone.code, undone.err) == (0, "3 entities restored, 0 unchanged\n")
    wait_for(address, before)
    assert kquota("history").code == 6


def test_what_the_brokers_refuse_is_told_for_each_entity(
    address: str, kquota: Callable[..., Ran], tmp_path: Path
) -> None:
    """The others are done, and the exit code says that not all were."""
    file = tmp_path / "q.yaml"
    file.write_text(
        "- {entity: {user: a}, values: {producer_byte_rate: 1e6}}\n"
        "- {entity: {ip: no-such-host.invalid}, values: {connection_creation_rate: 1e6}}\n"
    )
    ran = kquota("apply", "-f", str(file))
    assert ran.code == 1
    assert [line.split()[0::5] for line in ran.out.splitlines()] == [
        ["user=a", "done"],
        ["ip=no-such-host.invalid", "failed"],
    ]
    assert "ip=no-such-host.invalid: INVALID_REQUEST: no-such-host.invalid is not a valid IP" in ran.err
    assert "1 entity changed, 0 unchanged, 1 failed" in ran.err
    wait_for(address, {ClientQuotaEntity({"user": "a"}): {"producer_byte_rate": 1e6}})


def test_a_key_that_does_not_exist_is_refused_with_the_one_that_was_meant(kquota: Callable[..., Ran]) -> None:
    ran = kquota("alter", "--name", "user=a", "--add", "producer_byterate=1e6")
    assert ran.code == 1
    assert ran.err == (
        "kquota: error: user=a: INVALID_REQUEST: Invalid configuration key producer_byterate; did you mean "
        "producer_byte_rate?\n"
    )
