"""``kquota callback test``: what is said, and the exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from kquota.admin import QuotaAdmin
from kquota.cli import run
from kquota.cli.callback.group import callback
from kquota.config import BrokerConfig
from kquota.files import QuotaFile
from kquota.metering.cluster import Cluster
from kquota.metering.cluster_json import cluster_from_json
from kquota.metering.replay import Replay
from kquota.quotas import ClientQuotaEntity
from tests.kit.analysis_directory import AnalysisDirectory

EXAMPLE = "examples.callbacks.by_prefix:ByClientIdPrefix"
ROOT = Path(__file__).parents[3]

BAD = """\
from kquota.metering.callback import DefaultQuotaCallback


class NanLimit(DefaultQuotaCallback):
    def quota_limit(self, quota_type, metric_tags):
        return float("nan")
"""


@pytest.fixture
def recorded() -> AnalysisDirectory:
    """Two users under client ids with one prefix, a minute long; the second of two brokers has little to do."""
    directory = AnalysisDirectory()
    for second in range(60):
        directory.request("alice", "etl-1", second * 1000, 600.0, throttle_ms=second % 2)
        directory.request("bob", "etl-[red]2", second * 1000 + 1, 600.0)
    directory.request("carol", "app", 0, 1.0, broker_id=2)
    return directory


@pytest.fixture
def usage(recorded: AnalysisDirectory, tmp_path: Path) -> str:
    quotas = {
        ClientQuotaEntity({"user": "prefix:etl"}): {"producer_byte_rate": 1000.0},
        ClientQuotaEntity({"user": "alice"}): {"producer_byte_rate": 500.0},
    }
    recorded.quotas = QuotaFile.of(quotas)
    return str(recorded.write(tmp_path / "out"))


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_a_callback_of_ones_own(usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The limit of both, what Kafka's rules make of the same, and what was logged."""
    assert run(["callback", "test", EXAMPLE, "--dataset", usage]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{EXAMPLE} on 121 requests and keys of 2 brokers, 59 s of {usage}\n")
    assert "It keeps its contract." in captured.out
    [line] = [line for line in captured.out.splitlines() if "prefix=etl" in line]
    assert line.split()[:7] == ["0", "prefix=etl", "producer_byte_rate", "120", "72,000", "1000", "B/s"]
    assert line.split()[-3:] == ["30", "30", "ms"]
    assert captured.err.startswith("broker 0 ")
    assert "requests and keys of about 121" in captured.err


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert run(["callback", "test", *arguments, "--format", "json", "-q"]) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    found: dict[str, Any] = json.loads(captured.out)
    return found


def test_its_answers_as_json(usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, EXAMPLE, "--dataset", usage)
    assert {name: found[name] for name in ("callback", "grain", "brokers", "records", "skipped", "keeps_contract")} == {
        "callback": EXAMPLE,
        "grain": "request",
        "brokers": [0, 2],
        "records": 121,
        "skipped": 0,
        "keeps_contract": True,
    }
    meter = found["meters"][0]
    assert (meter["broker_id"], meter["meter"], meter["key"]) == (0, {"prefix": "etl"}, "producer_byte_rate")
    assert (meter["requests"], meter["amount"], meter["limit_min"], meter["limit_max"]) == (120, 72_000, 1000, 1000)
    assert meter["callback"]["throttled_requests"] > 0
    assert meter["logged"] == {"throttled_requests": 30, "throttle_ms": 30, "throttle_max_ms": 1}
    methods = {method["method"]: method for method in found["methods"]}
    assert methods["quota_metric_tags"]["calls"] >= 121
    assert 0 < methods["quota_limit"]["p50_ms"] <= methods["quota_limit"]["p99_ms"] <= methods["quota_limit"]["max_ms"]


def test_settings_of_a_file_and_of_the_command_line(
    usage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line's go before the file's, and these before the broker's."""
    properties = tmp_path / "callback.properties"
    properties.write_text("prefix.separator=x\n")
    broker = tmp_path / "server.properties"
    broker.write_text("prefix.separator=y\nnode.id=77\nquota.window.num=2\n")

    def meters(*arguments: str) -> set[str]:
        found = as_json(capsys, EXAMPLE, "--dataset", usage, "--broker-config", str(broker), *arguments)
        return {meter["meter"].get("prefix", "") for meter in found["meters"]}

    assert meters() == {""}
    assert meters("--callback-config", str(properties), "-C", "prefix.separator=-") == {"etl", ""}
    assert meters("--callback-config", str(properties)) == {""}


def test_other_quotas_and_none(
    recorded: AnalysisDirectory, usage: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    quotas = tmp_path / "other.yaml"
    quotas.write_text("- {entity: {user: alice}, values: {producer_byte_rate: 1}}\n")
    found = as_json(capsys, "default", "--dataset", usage, "--quotas", str(quotas))
    assert [meter["limit_max"] for meter in found["meters"]] == [1, None, None]
    recorded.quotas = None
    without = str(recorded.write(tmp_path / "without"))
    assert run(["callback", "test", "default", "--dataset", without, "-q"]) == 0
    assert "There are no quotas" in capsys.readouterr().out


def test_seconds_where_requests_were_not_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = AnalysisDirectory()
    directory.usage("alice", "c", 1, 50.0, requests=7)
    directory.usage("alice", None, 1, 50.0, grain="user")
    assert run(["callback", "test", "groups", "--dataset", str(directory.write(tmp_path / "out")), "-q"]) == 0
    out = capsys.readouterr().out
    assert "The dataset has no single requests" in out
    assert "1 more are left out" in out


def test_a_broken_contract_ends_with_1(
    usage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The module may lie in the directory of the moment; each fault has an example."""
    (tmp_path / "bad_callbacks.py").write_text(BAD)
    monkeypatch.chdir(tmp_path)
    assert run(["callback", "test", "bad_callbacks:NanLimit", "--dataset", usage, "-q"]) == 1
    out = capsys.readouterr().out
    assert "It does not keep its contract." in out
    assert "quota_limit gave a limit that is neither None nor a number above zero" in out
    assert "answered nan" in out
    [finding] = as_json(capsys, "bad_callbacks:NanLimit", "--dataset", usage, code=1)["findings"]
    assert (finding["fault"], finding["method"]) == ("no_limit", "quota_limit")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nonsense"], "write it as package.module:Class, or name one that is installed: default, fair-share"),
        (["no.such:Class"], "No module named 'no'; write it as package.module:Class"),
        (["groups", "-C", "kquota.groups"], "-C kquota.groups: write it as key=value"),
        (["groups", "-C", "kquota.groups={"], "kquota.groups: this is not JSON"),
        (["groups", "--callback-config", "missing.properties"], "cannot read the callback's settings"),
        (["groups", "--quotas", "missing.yaml"], "cannot read the quotas"),
        (["groups", "-D", "quota.window.num=0"], "-D quota.window.num=0"),
        (["groups", "--budget-ms", "0"], "--budget-ms"),
    ],
)
def test_what_cannot_be_used_ends_with_2(
    arguments: list[str], reason: str, usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["callback", "test", *arguments, "--dataset", usage, "-q"]) == 2
    captured = capsys.readouterr()
    assert reason in captured.err
    assert captured.out == ""


def test_a_directory_that_kquota_did_not_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["callback", "test", "groups", "--dataset", str(tmp_path)]) == 2
    assert "is no dataset: there is nothing; `kquota analyze --out`" in capsys.readouterr().err


def test_a_module_that_fails_to_load(
    usage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "half_a_callback.py").write_text("class Half(\n")
    monkeypatch.chdir(tmp_path)
    assert run(["callback", "test", "half_a_callback:Half", "--dataset", usage]) == 2
    assert "half_a_callback cannot be imported: SyntaxError" in capsys.readouterr().err


def test_the_help_has_examples_with_options_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["callback", "test", "--help"]) == 0
    text = capsys.readouterr().out
    command = callback.get_command(click.Context(callback), "test")
    assert command is not None
    options = {opt for param in command.params for opt in param.opts}
    examples = [line for line in text.splitlines() if line.strip().startswith("kquota callback test ")]
    assert len(examples) >= 3
    for line in examples:
        assert {word for word in line.split() if word.startswith("-")} <= options


def test_a_setting_of_the_broker_is_none_of_the_callbacks(
    usage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would have no effect there."""
    path = tmp_path / "callback.properties"
    path.write_text("quota.producer.default=1000\n")
    for given in (["-C", "quota.producer.default=1000"], ["--callback-config", str(path)]):
        assert run(["callback", "test", "default", "--dataset", usage, *given]) == 2
        assert "quota.producer.default is the broker's setting, not the callback's" in capsys.readouterr().err
    found = as_json(capsys, "default", "--dataset", usage, "-D", "quota.producer.default=10")
    limits = {tuple(meter["meter"].items()): meter["limit_max"] for meter in found["meters"]}
    assert limits[("client-id", "app"),] == 10


LED = {"topic": "prefix_t", "partition": 0, "leader": 0}


def cluster_file(tmp_path: Path, fields: object) -> str:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(fields))
    return str(path)


def test_a_cluster_may_be_given(usage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A callback whose limits depend on who leads what is given all of it, on each broker."""
    quotas = tmp_path / "tenants.yaml"
    quotas.write_text("- {entity: {user: 'car'}, values: {producer_byte_rate: 800}}\n")
    separator = ["-C", "kquota.tenant.separator=r", "--quotas", str(quotas)]
    partitions = [{**LED, "topic": "caro", "partition": number, "leader": number and 2} for number in range(4)]
    found = as_json(capsys, "partitions", "--dataset", usage, *separator)
    [carol] = [meter for meter in found["meters"] if meter["meter"] == {"tenant": "ca"}]
    assert (carol["broker_id"], carol["limit_max"]) == (2, 800)
    given = cluster_file(tmp_path, {"partitions": partitions})
    found = as_json(capsys, "partitions", "--dataset", usage, *separator, "--cluster-metadata", given)
    [carol] = [meter for meter in found["meters"] if meter["meter"] == {"tenant": "ca"}]
    assert (carol["broker_id"], carol["limit_max"]) == (2, 600)


@pytest.mark.parametrize(
    ("fields", "reason"), [({"partitions": [LED, LED]}, "is given twice"), ({}, "missing required field `partitions`")]
)
def test_a_cluster_that_cannot_be_read(
    fields: object, reason: str, usage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = cluster_file(tmp_path, fields)
    assert run(["callback", "test", "partitions", "--dataset", usage, "--cluster-metadata", path]) == 2
    told = capsys.readouterr().err
    assert f"--cluster-metadata {path}: this is no cluster: " in told
    assert reason in told
    Path(path).write_text("{")
    assert run(["callback", "test", "partitions", "--dataset", usage, "--cluster-metadata", path]) == 2
    assert f"--cluster-metadata {path}: this is not JSON" in capsys.readouterr().err
    assert run(["callback", "test", "partitions", "--dataset", usage, "--cluster-metadata", "absent.json"]) == 2
    assert "--cluster-metadata absent.json: cannot be read: No such file" in capsys.readouterr().err
    assert run(["pipeline", "whatif", "--dataset", usage, "--quotas", "q", "--cluster-metadata", path]) == 2


def test_the_metadata_of_a_cluster_is_such_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And, with an op, a line of a trace."""
    known = Cluster.of_leaders("prod", {("acme_orders", 0): 1, ("acme_orders", 1): None})
    monkeypatch.setattr(QuotaAdmin, "cluster", lambda _: known)
    assert run(["callback", "cluster", "--bootstrap-server", "127.0.0.1:1"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert cluster_from_json(written).partitions == tuple(known.partitions)
    assert list(Replay(BrokerConfig()).answers([{"op": "cluster", **written}])) == []
    assert run(["callback", "cluster"]) == 2
    assert "--bootstrap-server HOST:PORT" in capsys.readouterr().err
