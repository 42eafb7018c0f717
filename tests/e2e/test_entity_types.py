"""An entity type beside Kafka's: named once, then set, described, resolved and served."""

import json
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kquota.admin import QuotaAdmin, ResolveClientQuotasOptions
from kquota.cli import run
from kquota.cli.kafka_client_quotas import run as run_kip_546_tool
from kquota.errors import ApiError, ApiFailedError
from kquota.quotas import (
    KAFKA,
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    MeterKey,
    QuotaResolver,
)
from kquota.stores import open_store
from kquota.stores.cluster import ClusterStore
from kquota.wire.apis import RESOLVE_CLIENT_QUOTAS, read_response, write_request
from kquota.wire.messages.resolve_client_quotas import NamedPart, ResolveClientQuotasRequest
from tests.kit.quota_server import running_server

KQUOTA = str(Path(sys.executable).parent / "kquota")
P = "producer_byte_rate"
MODEL = KAFKA.with_entity_type("group", keys=[P], level=7, meter_tag="team")
SETTINGS = f"""\
[entity_types.group]
keys = ["{P}"]
level = 7
meter_tag = "team"
"""
QUOTAS = """\
quotas:
- entity: {user: boss}
  values: {producer_byte_rate: 1}
- entity: {client-id: etl}
  values: {producer_byte_rate: 2}
- entity: {group: pay}
  values: {producer_byte_rate: 3}
- entity: {group: null}
  values: {producer_byte_rate: 4}
"""
PAY = ClientQuotaEntity({"group": "pay"})
CLIENT = {"user": "ann", "client-id": "etl", "group": "pay"}
EXPLAINED = """\
user=ann,client-id=etl,group=pay
  producer_byte_rate: 3 bytes/second
    binds       level 7: group          group=pay        3 bytes/second
    overridden  level 8: default group  group=<default>  4 bytes/second
    overridden  level 9: client-id      client-id=etl    2 bytes/second
    counted on team=pay: shared by all clients of team pay without a better match
"""


@pytest.fixture
def settings(tmp_path: Path) -> str:
    path = tmp_path / "kquota.toml"
    path.write_text(SETTINGS)
    return str(path)


@pytest.fixture
def quotas(tmp_path: Path) -> str:
    path = tmp_path / "quotas.yaml"
    path.write_text(QUOTAS)
    return str(path)


@pytest.fixture
def server(tmp_path: Path, settings: str) -> Iterator[str]:
    command = [KQUOTA, "--config", settings, "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--store", f"sqlite:///{tmp_path}/q.db"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("listening on ").strip()
        process.send_signal(signal.SIGTERM)


def ask_to_resolve(address: str, names: dict[str, str]) -> Any:
    """KIP-546's own request, 50 v0, which no client of ours sends."""
    host, _, port = address.rpartition(":")
    request = ResolveClientQuotasRequest([NamedPart(kind, name) for kind, name in names.items()])
    with socket.create_connection((host, int(port)), 20) as connection, connection.makefile("rb") as stream:
        connection.sendall(write_request(RESOLVE_CLIENT_QUOTAS, 0, 1, "test", request))
        [size] = struct.unpack(">i", stream.read(4))
        [entry] = read_response(RESOLVE_CLIENT_QUOTAS, 0, stream.read(size))[1].entry
    return entry


def test_in_python_it_is_one_argument() -> None:
    """The store has the model, and the server of the store resolves by it, through both APIs."""
    alteration = ClientQuotaAlteration(PAY, [ClientQuotaAlteration.Op(P, 3.0)])
    with (
        open_store("memory:", model=MODEL) as store,
        running_server(store) as address,
        QuotaAdmin(str(address)) as admin,
    ):
        admin.alter_client_quotas([alteration]).all()
        described = admin.describe_client_quotas(ClientQuotaFilter.all()).entities()
        assert described == {PAY: {P: 3.0}}
        client = ClientQuotaEntity(CLIENT)
        answer = admin.resolve_client_quotas([client]).config()[client]
        entry = ask_to_resolve(str(address), CLIENT)
    assert not isinstance(answer, ApiError)
    assert (answer[P].entry, answer[P].meter) == ((PAY, 3.0, 7), MeterKey({"team": "pay"}))
    assert entry.quota_values[0].entry[0].quota_entity == [NamedPart("group", "pay")]
    here = QuotaResolver(described, model=MODEL).resolve_client(CLIENT)
    assert not isinstance(here, ApiError)
    assert (here[P].source, here[P].level, here[P].meter) == (PAY, 7, answer[P].meter)


def test_a_client_that_knows_it_resolves_for_a_server_that_does_not() -> None:
    """As a Kafka cluster with a plugin of its own would be: described, and resolved by the model of the client."""
    client = ClientQuotaEntity(CLIENT)
    static = {P: 9.0}
    with (
        open_store("memory:", model=MODEL) as store,
        running_server(store) as address,
        QuotaAdmin(str(address), model=MODEL) as admin,
        QuotaAdmin(str(address)) as other,
    ):
        store.alter([ClientQuotaAlteration(PAY, [ClientQuotaAlteration.Op(P, 3.0)])])
        options = ResolveClientQuotasOptions(static_defaults=static)
        answer = admin.resolve_client_quotas([client], options).config()[client]
        with pytest.raises(ApiFailedError, match="Unhandled client quota entity type: group"):
            other.resolve_client_quotas([client], options).all()
    assert not isinstance(answer, ApiError)
    assert [(one.value, one.level) for one in (answer[P].entry, *answer[P].overridden_entries)] == [(3.0, 7), (9.0, 11)]


def test_by_command_it_is_named_in_the_settings(
    server: str, settings: str, quotas: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Set, planned, applied, described, linted and resolved, on a server, in its store and from a file."""
    base = ["--config", settings]
    there = ["--bootstrap-server", server]
    in_store = ["--store", f"sqlite:///{tmp_path}/q.db"]

    def done(*arguments: str, code: int = 0) -> str:
        assert run([*base, *arguments]) == code, capfd.readouterr().err
        return capfd.readouterr().out

    assert "3  done" in done("alter", *there, "--name", "group=pay", "--add", f"{P}=3")
    assert "5  done" in done("alter", *in_store, "--default", "group", "--add", f"{P}=5")
    assert "group=<default>" in done("plan", "-f", quotas, *there, code=3)
    done("apply", "-f", quotas, *in_store)
    assert done("plan", "-f", quotas, *there) == "no changes\n"
    for place in (there, in_store, ["--quotas", quotas]):
        assert done("describe", *place, "--any", "group") == (
            "group=pay        producer_byte_rate  3  bytes/second\n"
            "group=<default>  producer_byte_rate  4  bytes/second\n"
        )
        who = [argument for kind, name in CLIENT.items() for argument in ("--name", f"{kind}={name}")]
        assert done("resolve", *place, *who, "--explain").startswith(EXPLAINED)
        [row] = [one for one in done("resolve", *place, *who, "--format", "csv").splitlines() if P in one]
        assert row == "ann,etl,,pay,producer_byte_rate,3,group=pay,7,team=pay,8:group=<default>:4 9:client-id=etl:2"
        assert '{"group": "pay"}' in done("lint", *place, "--fail-on", "error", "--format", "jsonl")
    clients = tmp_path / "clients.csv"
    clients.write_text("user,client-id,group\nann,etl,pay\nboss,etl,pay\n")
    lines = done("resolve", *there, "--from", str(clients), "--format", "jsonl").splitlines()
    found = [json.loads(line) for line in lines]
    assert [one["client"] for one in found] == [CLIENT, {**CLIENT, "user": "boss"}]
    assert [one["quotas"][P]["source"] for one in found] == [{"group": "pay"}, {"user": "boss"}]


def test_tools_without_the_settings_ask_the_server(server: str, capfd: pytest.CaptureFixture[str]) -> None:
    """What a cluster knows is for the cluster to say."""
    place = ["--bootstrap-server", server]
    assert run(["alter", *place, "--name", "group=pay", "--add", f"{P}=3"]) == 0
    capfd.readouterr()
    assert run_kip_546_tool([*place, "--resolve", "--names=user=ann,group=pay"]) == 0
    assert capfd.readouterr().out == "producer_byte_rate=3 {group=pay}\n"
    assert run(["resolve", *place, "--name", "group=pay", "--format", "csv"]) == 0
    out = capfd.readouterr().out.splitlines()
    assert out[0].startswith("user,client-id,ip,group,key,")
    assert ",,,pay,producer_byte_rate,3,group=pay,7,team=pay," in out


def test_where_it_is_not_named_it_has_kafkas_errors(capfd: pytest.CaptureFixture[str]) -> None:
    with open_store("memory:") as store, running_server(store) as address:
        place = ["--bootstrap-server", str(address)]
        assert run(["alter", *place, "--name", "group=pay", "--add", f"{P}=3"]) == 6
        with ClusterStore(QuotaAdmin(str(address))) as cluster:
            altered = cluster.alter([ClientQuotaAlteration(PAY, [ClientQuotaAlteration.Op(P, 3.0)])])
        assert altered == {PAY: ApiError(42, "Unhandled client quota entity type: group")}
        entry = ask_to_resolve(str(address), {"group": "pay"})
        assert (entry.error_code, entry.error_message) == (42, "Unhandled client quota entity type: group")
        capfd.readouterr()
        assert run(["resolve", *place, "--name", "group=pay"]) == 1
        assert "Unhandled client quota entity type: group" in capfd.readouterr().err


@pytest.mark.parametrize(
    "text, message",
    [
        ("entity_types = 1", "entity_types: there is no such option"),
        ("[entity_types]\ngroup = 1", "entity_types.group is a table: write [entity_types.group]"),
        ("[entity_types.group]", "entity_types.group.keys: a list of what may be set on a group is expected"),
        ("[entity_types.group]\nkeys = []", "entity_types.group.keys: a list"),
        ('[entity_types.group]\nkeys = ["rate"]', "no quota key is called 'rate'; there are producer_byte_rate, "),
        ('[entity_types.user]\nkeys = ["producer_byte_rate"]', "entity type 'user' exists already"),
        (f"{SETTINGS}place = 1", "entity_types.group.place: there is no such field (there are keys, level, meter_tag)"),
        (SETTINGS.replace("7", "10"), "entity_types.group: entity type group: level 10 is none of 1 (above all) to 9"),
        (SETTINGS.replace("7", '"user"'), "level 'user' is none of 1"),
        (SETTINGS.replace('"team"', '"user"'), "meter tag 'user' is taken"),
        (SETTINGS.replace('"team"', "1"), "entity_types.group.meter_tag: text is expected"),
    ],
)
def test_settings_that_name_it_wrongly(
    tmp_path: Path, quotas: str, text: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kquota.toml"
    path.write_text(text)
    assert run(["--config", str(path), "describe", "--quotas", quotas]) == 2
    assert f"{path}: " in (error := capfd.readouterr().err)
    assert message in error
