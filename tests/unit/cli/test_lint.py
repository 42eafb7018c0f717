"""``kquota lint``: where quotas come from, how findings are printed, and what it ends with."""

import csv
import io
import json
from pathlib import Path

import pytest

from kquota.cli import run
from kquota.files import read_quota_file, write_yaml
from kquota.quotas import ClientQuotaAlteration
from kquota.stores import open_store

FILES = Path(__file__).parents[2] / "data" / "quota_files"

QUIET = "- entity: {user: a}\n  values: {producer_byte_rate: 5MB}\n"
NOTE = QUIET + "- entity: {client-id: c}\n  values: {producer_byte_rate: 5MB}\n"
WARNING = "- entity: {user: null}\n  values: {producer_byte_rate: 1MB}\n" + NOTE


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("quiet", QUIET), ("note", NOTE), ("warning", WARNING), ("broken", "- entity: {}\n")):
        Path(f"{name}.yaml").write_text(text)


def lint(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["lint", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    "arguments, code, summary",
    [
        (["quiet.yaml"], 0, "nothing found\n"),
        (["note.yaml"], 0, "1 note\n"),
        (["note.yaml", "--fail-on", "info"], 1, "1 note\n"),
        (["warning.yaml"], 1, "1 warning\n"),
        (["warning.yaml", "--fail-on", "error"], 0, "1 warning\n"),
        (["quiet.yaml", "note.yaml", "-f", "warning.yaml"], 1, "1 warning, 1 note\n"),
        (["-f", "warning.yaml"], 1, "1 warning\n"),
        (["--quotas", "warning.yaml"], 1, "1 warning\n"),
        (["quiet.yaml", "-D", "message.max.bytes=100MB"], 2, "kquota: error: -D message.max.bytes=100MB: a broker"),
        (["quiet.yaml", "-D", "message.max.bytes=1000000000"], 1, "1 warning\n"),
        (["broken.yaml"], 2, "kquota: error: broken.yaml:1:"),
        (["missing.yaml"], 2, "kquota: error: missing.yaml: cannot read the quotas"),
        (["quiet.yaml", "--quotas", "note.yaml"], 2, "Usage:"),
        (["quiet.yaml", "--store", "memory:"], 2, "Usage:"),
        ([], 2, "Usage:"),
    ],
)
def test_exit_codes(arguments: list[str], code: int, summary: str, capsys: pytest.CaptureFixture[str]) -> None:
    """1 is what was asked to fail on, 2 what cannot be used; standard error has the sum."""
    found, _, err = lint(capsys, *arguments)
    assert found == code
    assert err.startswith(summary)


def test_a_file_that_cannot_be_read_does_not_keep_the_others_from_being_looked_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = lint(capsys, "broken.yaml", "warning.yaml")
    assert code == 2
    assert out.startswith("warning.yaml:5: warning: client-id=c producer_byte_rate: binds nobody")
    assert err.splitlines()[-1] == "1 warning"


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """As documented; several files are told apart."""
    code, out, _ = lint(capsys, "warning.yaml", "--format", "json")
    (one,) = json.loads(out)
    message = one.pop("message")
    assert code == 1
    assert message.startswith("binds nobody: user=<default> takes precedence over it")
    assert one == {
        "rule": "unreachable",
        "severity": "warning",
        "entity": {"client-id": "c"},
        "key": "producer_byte_rate",
    }
    _, out, _ = lint(capsys, "warning.yaml", "note.yaml", "--format", "json")
    assert [found["file"] for found in json.loads(out)] == ["warning.yaml", "note.yaml"]
    assert lint(capsys, "quiet.yaml", "--format", "json")[1] == "[]\n"


def test_what_is_about_no_entity_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = lint(capsys, str(FILES / "rpk.yaml"), "--format", "json")
    (one,) = json.loads(out)
    assert (one["rule"], one["entity"], one["key"]) == ("not-carried", None, None)
    assert err == "1 warning\n"


def test_csv(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = lint(capsys, "warning.yaml", "--format", "csv")
    header, row = csv.reader(io.StringIO(out, newline=""))
    assert header == ["place", "rule", "severity", "entity", "key", "message"]
    assert row[:5] == ["warning.yaml:5", "unreachable", "warning", "client-id=c", "producer_byte_rate"]


def test_a_store(capsys: pytest.CaptureFixture[str]) -> None:
    with open_store("sqlite:///q.db") as store:
        quotas = read_quota_file(WARNING, name="q.yaml").snapshot()
        store.alter([
            ClientQuotaAlteration(entity, [ClientQuotaAlteration.Op(*pair) for pair in values.items()])
            for entity, values in quotas.items()
        ])  # fmt: skip
    code, out, _ = lint(capsys, "--store", "sqlite:///q.db")
    assert code == 1
    assert out.startswith("warning: client-id=c producer_byte_rate: binds nobody")


def test_files_go_before_a_place_that_the_environment_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KQUOTA_BOOTSTRAP_SERVER", "localhost:1")
    assert lint(capsys, "note.yaml")[0] == 0


def test_settings_of_the_broker_from_its_own_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("server.properties").write_text("message.max.bytes = 1000000000\nlog.dirs=/x\n")
    code, out, _ = lint(capsys, "quiet.yaml", "--broker-config", "server.properties")
    assert code == 1
    assert "1000000000 bytes (message.max.bytes)" in out


def test_other_commands_tell_what_is_not_carried_over(capsys: pytest.CaptureFixture[str]) -> None:
    """And export makes a foreign file one of ours."""
    path = str(FILES / "rpk.yaml")
    assert run(["export", "--quotas", path]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith(f"kquota: warning: {path}:16:7: quotas[2]: not carried over: Kafka has no quotas by")
    again = read_quota_file(captured.out, name="q.yaml")
    assert write_yaml(again) == captured.out
    assert again == read_quota_file(captured.out.encode(), name="q.yaml")
    assert run(["resolve", "--quotas", str(FILES / "kafka_configs.txt"), "--name", "user=ann"]) == 0
    assert " 1024 bytes/second  level 3: user " in capsys.readouterr().out
