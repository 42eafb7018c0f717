"""Commands that ask a cluster: what they show of its answers, and what they warn of."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from kquota.cli import kafka_client_quotas, run
from kquota.wire.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS, RESOLVE_QUOTAS
from kquota.wire.messages.client_quotas import (
    AlterationResult,
    AlterClientQuotasResponse,
    DescribeClientQuotasResponse,
    EntityPart,
    Entry,
    Value,
)
from kquota.wire.messages.resolve_client_quotas import (
    NamedPart,
    ResolvedClient,
    ResolvedValue,
    ResolveQuotasResponse,
    Rule,
)
from tests.kit.scripted_broker import scripted_broker

EVIL = "k\x1b]0;pwned\x07\x9b2J\u202eyek\r"
SHOWN = r"k\u001b]0;pwned\u0007\u009b2J\u202eyek\u000d"
CONTROLS = set("\x1b\x07\x9b\u202e\r")
USER = [EntityPart("user", "a")]
DESCRIBED = DescribeClientQuotasResponse(0, 0, None, [Entry(USER, [Value(EVIL, 5.0)])])
REFUSED = DescribeClientQuotasResponse(0, 42, EVIL, None)
NAMED = [NamedPart("user", "a")]
RESOLVED = ResolveQuotasResponse(
    0, 0, None, [ResolvedClient(0, None, NAMED, [ResolvedValue(EVIL, Rule(5.0, 3, USER), NAMED, [])])]
)
ANSWERS = {DESCRIBE_CLIENT_QUOTAS.key: DESCRIBED, RESOLVE_QUOTAS.key: RESOLVED}
ALTERED = AlterClientQuotasResponse(0, [AlterationResult(42, EVIL, USER)])

PASSWORD = "TOPSECRET"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{PASSWORD}";'
PLAIN = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN", "-X", "default.api.timeout.ms=100"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe"],
        ["describe", "--format", "yaml"],
        ["describe", "--format", "jsonl"],
        ["export"],
        ["resolve", "--name", "user=a"],
        ["resolve", "--name", "user=a", "--explain"],
        ["resolve", "--name", "user=a", "--format", "json"],
        ["alter", "--name", "user=a", "--delete", EVIL],
        ["alter", "--name", "user=a", "--delete", EVIL, "--format", "json"],
        ["plan", "-f", "-", "--prune"],
    ],
    ids=" ".join,
)
def test_what_a_cluster_answers_is_shown_and_not_obeyed(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Names of keys and texts of errors, in every form."""
    if "-" in arguments:
        empty = tmp_path / "empty.yaml"
        empty.write_text("- {entity: {user: b}, values: {producer_byte_rate: 1}}\n")
        arguments = [str(empty) if one == "-" else one for one in arguments]
    with scripted_broker({**ANSWERS, ALTER_CLIENT_QUOTAS.key: ALTERED}) as address:
        run([*arguments, "--bootstrap-server", address])
    out, err = capsys.readouterr()
    assert "pwned" in out + err
    assert not CONTROLS & set(out + err)


def test_csv_has_no_control_characters_beside_its_ends_of_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with scripted_broker({DESCRIBE_CLIENT_QUOTAS.key: DESCRIBED}) as address:
        assert run(["describe", "--bootstrap-server", address, "--format", "csv"]) == 0
    assert capsys.readouterr().out == f"entity,key,value\r\nuser=a,{SHOWN},5\r\n"


def test_json_gives_what_the_cluster_answered(capsys: pytest.CaptureFixture[str]) -> None:
    with scripted_broker({DESCRIBE_CLIENT_QUOTAS.key: DESCRIBED}) as address:
        assert run(["describe", "--bootstrap-server", address, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["values"] == {EVIL: 5}


def test_the_tool_of_kip_546_shows_and_does_not_obey(capsys: pytest.CaptureFixture[str]) -> None:
    with scripted_broker({**ANSWERS, ALTER_CLIENT_QUOTAS.key: ALTERED}) as address:
        where = ["--bootstrap-server", address]
        assert kafka_client_quotas.run([*where, "--describe"]) == 0
        assert capsys.readouterr().out == f"{{user=a}}\n{SHOWN}=5\n"
        assert kafka_client_quotas.run([*where, "--resolve", "--names=user=a"]) == 0
        assert capsys.readouterr().out == f"{SHOWN}=5 {{user=a}}\n"
        assert kafka_client_quotas.run([*where, "--alter", "--names=user=a", "--delete=x"]) == 1
        assert capsys.readouterr().err == f"kafka-client-quotas: error: INVALID_REQUEST: {SHOWN}\n"


def test_an_error_of_a_cluster_is_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    with scripted_broker({DESCRIBE_CLIENT_QUOTAS.key: REFUSED}) as address:
        assert run(["describe", "--bootstrap-server", address]) == 1
    assert capsys.readouterr().err == f"kquota: error: INVALID_REQUEST: {SHOWN}\n"


def warnings_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    run(["describe", *arguments])
    err = capsys.readouterr().err
    assert PASSWORD not in err
    return [line for line in err.splitlines() if "warning" in line]


def test_a_password_on_the_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Is warned of, with what to write instead; that is taken without a word, as the environment is."""
    nobody = ["--bootstrap-server", "127.0.0.1:1", *PLAIN]
    assert warnings_of([*nobody, "-X", f"sasl.jaas.config={JAAS}"], capsys) == [
        (
            "kquota: warning: -X sasl.jaas.config: every user of this machine can read a command line: write "
            "-X sasl.jaas.config=@FILE or -X sasl.jaas.config=env:NAME, or use --command-config"
        )
    ]
    monkeypatch.setenv("JAAS", JAAS)
    assert warnings_of([*nobody, "-X", "sasl.jaas.config=env:JAAS"], capsys) == []
    monkeypatch.setenv("KQUOTA_PROPERTY", "\n".join([*PLAIN[1::2], f"sasl.jaas.config={JAAS}"]))
    assert warnings_of(nobody[:2], capsys) == []


def test_a_file_that_others_can_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Where it holds a secret."""
    path = tmp_path / "admin.properties"
    path.write_text(f"sasl.jaas.config={JAAS}\ndefault.api.timeout.ms=100\n")
    arguments = ["--bootstrap-server", "127.0.0.1:1", *PLAIN, "--command-config", str(path)]
    path.chmod(0o644)
    assert warnings_of(arguments, capsys) == [
        f"kquota: warning: {path}: others than its owner can read this file, and it holds a secret: chmod 600 it"
    ]
    code = kafka_client_quotas.run([*arguments[:2], *arguments[-2:], "--describe"])
    assert (code, capsys.readouterr().err.partition(": ")[0]) == (1, "kafka-client-quotas")
    path.chmod(0o600)
    assert warnings_of(arguments, capsys) == []


def test_a_password_without_tls(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Is warned of, unless it stays on this machine."""
    monkeypatch.setenv("JAAS", JAAS)
    arguments = [*PLAIN, "-X", "sasl.jaas.config=env:JAAS"]
    assert warnings_of(["--bootstrap-server", "0.0.0.0:1", *arguments], capsys) == [
        (
            "kquota: warning: the password or token goes over the network without TLS, where others can read it: use "
            "security.protocol=SASL_SSL"
        )
    ]
    assert warnings_of(["--bootstrap-server", "127.0.0.1:1", *arguments], capsys) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--bootstrap-server", f"kafka://ann:{PASSWORD}@host:9092"],
        ["--bootstrap-server", f"https://ann:{PASSWORD}@host/"],
        ["--store", f"postgres://ann:{PASSWORD}@host/db"],
        ["--bootstrap-server", "127.0.0.1:1", "-X", PASSWORD],
        ["--bootstrap-server", "127.0.0.1:1", "-X", f"ssl.key.password=@{PASSWORD}"],
        ["--store", "memory:", "-X", f"ssl.key.password={PASSWORD}"],
    ],
)
def test_no_error_repeats_a_secret(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """And each is exit code 2."""
    assert run(["-v", "describe", *arguments]) == 2
    assert PASSWORD not in capsys.readouterr().err


@pytest.mark.parametrize("command", [["describe"], ["resolve"], ["alter", "--add", "producer_byte_rate=1"]])
def test_a_name_that_no_request_can_hold(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Is a wrong input, with its reason in one line."""
    with scripted_broker(ANSWERS) as address:
        assert run([*command, "--bootstrap-server", address, "--name", "user=" + "x" * 40_000]) == 2
        err = capsys.readouterr().err
        assert err == "kquota: error: a name or text of 40000 bytes cannot be sent: 32767 are the most\n"
        tool = ["--bootstrap-server", address, "--describe", "--names=user=" + "x" * 40_000]
        assert kafka_client_quotas.run(tool) == 1
    assert "40000 bytes cannot be sent" in capsys.readouterr().err


def test_a_connection_that_fails_is_one_line(tmp_path: Path) -> None:
    """Of ours: kafka-python logs each attempt."""
    command = [sys.executable, "-c", "from kquota.cli import main; main()", "describe", "--bootstrap-server"]
    ended = subprocess.run(
        [*command, "127.0.0.1:1", "-X", "default.api.timeout.ms=300"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 5
    assert len(ended.stderr.splitlines()) == 1, ended.stderr


_HOST_PROGRAM = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(name)s %(levelname)s %(message)s")
before = logging.getLogger("kafka").level, logging.getLogger("kafka").handlers
import kquota.admin
from kquota.admin import QuotaAdmin
QuotaAdmin("127.0.0.1:1").close()
kafka = logging.getLogger("kafka")
assert (kafka.level, kafka.handlers, kafka.filters, kafka.disabled, kafka.propagate) == (*before, [], False, True)
logging.getLogger("kafka.consumer").error("of the host program")
"""


def test_the_log_of_a_program_that_uses_kafka_python_is_its_own() -> None:
    """Nothing is set at its loggers."""
    ended = subprocess.run([sys.executable, "-c", _HOST_PROGRAM], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == ["kafka.consumer ERROR of the host program"]


def test_a_command_in_a_program_leaves_its_log_alone(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A program that calls the command line, and logs what kafka-python says, still does."""
    run(["describe", "--bootstrap-server", "127.0.0.1:1", "-X", "default.api.timeout.ms=200"])
    logging.getLogger("kafka.consumer").error("of the host program")
    assert "of the host program" in caplog.messages
