"""Where secrets of a client may be, and that no error repeats one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kquota.admin import QuotaAdmin
from kquota.admin.properties import load_client_properties
from kquota.admin.servers import are_loopback
from kquota.errors import InputError, KquotaError

SECRET = "TOPSECRET"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAAS = f'{PLAIN} required username="a" password="{SECRET}";'
SASL = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN"]


def test_a_value_from_a_file(tmp_path: Path) -> None:
    """The end of its last line is no part of it."""
    path = tmp_path / "jaas"
    path.write_text(JAAS + "\n")
    found = load_client_properties(None, [*SASL, f"sasl.jaas.config=@{path}"])
    assert found.connection["sasl_plain_password"] == SECRET
    assert found.typed_secrets == ()


def test_a_value_from_the_environment() -> None:
    found = load_client_properties(None, [*SASL, "sasl.jaas.config=env:JAAS"], {"JAAS": JAAS})
    assert found.connection["sasl_plain_password"] == SECRET
    assert found.typed_secrets == ()


def test_a_value_that_begins_so_itself() -> None:
    """With two @; in a file of settings nothing is special."""
    assert load_client_properties(None, ["client.id=@@me"]).client_id == "@me"
    assert load_client_properties(None, ["client.id=@@@me"]).client_id == "@@me"
    assert load_client_properties(None, ["client.id=me@home"]).client_id == "me@home"


def test_a_file_of_settings_is_taken_as_java_takes_it(tmp_path: Path) -> None:
    path = tmp_path / "c.properties"
    path.write_text("client.id=@@env:me\n")
    assert load_client_properties(str(path)).client_id == "@@env:me"


@pytest.mark.parametrize(
    "value, reason",
    [
        (f"@/nowhere/{SECRET}", "after @: No such file"),
        ("@", "after @: "),
        ("@/", "after @: Is a directory"),
        (f"@{SECRET}\0", "after @: "),
        (f"env:{SECRET}", "no variable"),
        ("env:", "no variable"),
    ],
)
def test_what_is_not_there_is_said_by_its_setting(value: str, reason: str) -> None:
    """It may be a password that begins so."""
    with pytest.raises(InputError, match=f"-X ssl.key.password: .*{reason}") as refused:
        load_client_properties(None, [f"ssl.key.password={value}"])
    assert SECRET not in str(refused.value)
    assert refused.value.exit_code == 2


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        load_client_properties(None, [f"ssl.key.password=@{path}"])


@pytest.mark.parametrize(
    "settings",
    [
        [SECRET],
        [f"={SECRET}"],
        [f"security.protocol={SECRET}"],
        [SASL[0], f"sasl.mechanism={SECRET}"],
        [*SASL, f"sasl.jaas.config={SECRET}"],
        [*SASL, f"sasl.jaas.config={PLAIN} required {SECRET};"],
        [*SASL, f'sasl.jaas.config={PLAIN} required username="a" password="{SECRET}'],
        [*SASL, f"sasl.jaas.config={PLAIN} required username=a password={SECRET} extra;"],
        [*SASL, f"sasl.jaas.config={PLAIN} required password={SECRET};"],
        [f"request.timeout.ms={SECRET}"],
        ["security.protocol=SSL", f"ssl.enabled.protocols={SECRET}"],
        ["security.protocol=SSL", f"ssl.protocol={SECRET}"],
        ["security.protocol=SSL", f"ssl.endpoint.identification.algorithm={SECRET}"],
        ["security.protocol=SSL", f"ssl.keystore.key={SECRET}", "ssl.keystore.certificate.chain=x"],
        ["security.protocol=SSL", f"ssl.truststore.certificates={SECRET}"],
        ["security.protocol=SSL", f"ssl.keystore.password={SECRET}", "ssl.keystore.location=/etc/passwd"],
        [f"sasl.password={SECRET}"],
    ],
    ids=lambda settings: settings[-1].replace(SECRET, "..."),
)
def test_no_error_repeats_a_value(settings: list[str], tmp_path: Path) -> None:
    """Given as overrides, and in a file."""
    with pytest.raises(InputError) as refused:
        load_client_properties(None, settings)
    assert SECRET not in str(refused.value)
    if "=" in settings[0][1:]:
        path = tmp_path / "c.properties"
        path.write_text("\n".join(settings))
        with pytest.raises(InputError) as refused:
            load_client_properties(str(path))
        assert SECRET not in str(refused.value)


def test_a_broken_escape_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "c.properties"
    path.write_text("ssl.truststore.password=\\uTOPS\n")
    with pytest.raises(InputError, match="four hexadecimal digits") as refused:
        load_client_properties(str(path))
    assert "TOP" not in str(refused.value)


def test_a_server_with_a_login_is_refused() -> None:
    """An address is shown in every error of a connection."""
    with pytest.raises(KquotaError, match="host:port") as refused:
        QuotaAdmin(f"ok:9092,kafka://ann:{SECRET}@host:9092")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "setting, is_secret",
    [
        (f"sasl.jaas.config={JAAS}", True),
        (f'sasl.jaas.config={SCRAM} required username="a" Password = "b";', True),
        ("sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;", False),
        ("ssl.key.password=x", True),
        ("ssl.key.password=@@x", True),
        ("ssl.keystore.key=x", True),
        ("sasl.oauthbearer.client.credentials.client.secret=x", True),
        ("ssl.truststore.location=x", False),
        ("client.id=password=", False),
    ],
)
def test_secrets_that_were_typed_are_known(setting: str, is_secret: bool) -> None:
    found = load_client_properties(None, [setting])
    assert found.typed_secrets == ((setting.partition("=")[0],) if is_secret else ())


@pytest.mark.parametrize("mode, is_open", [(0o600, False), (0o640, True), (0o604, True), (0o700, False)])
def test_files_that_others_can_read_are_known(mode: int, is_open: bool, tmp_path: Path) -> None:
    """Where they hold a secret: of settings, and of one value."""
    settings, value, plain = tmp_path / "c.properties", tmp_path / "secret", tmp_path / "plain.properties"
    settings.write_text(f"ssl.key.password={SECRET}\nclient.id=a\n")
    value.write_text(SECRET)
    plain.write_text("client.id=a\n")
    for path in (settings, value, plain):
        path.chmod(mode)
    found = load_client_properties(str(settings), [f"ssl.keystore.password=@{value}"])
    assert found.open_files == ((str(settings), str(value)) if is_open else ())
    assert load_client_properties(str(plain)).open_files == ()


def test_what_a_shell_hands_over_is_nobody_elses() -> None:
    """``--command-config <(...)`` is a pipe."""
    reading, writing = os.pipe()
    os.write(writing, b"ssl.key.password=x\n")
    os.close(writing)
    try:
        assert load_client_properties(f"/dev/fd/{reading}").open_files == ()
    finally:
        os.close(reading)


@pytest.mark.parametrize(
    "mechanism, protocol, is_clear",
    [
        ("PLAIN", "SASL_PLAINTEXT", True),
        ("OAUTHBEARER", "SASL_PLAINTEXT", True),
        ("SCRAM-SHA-256", "SASL_PLAINTEXT", False),
        ("PLAIN", "SASL_SSL", False),
    ],
)
def test_logins_that_others_could_read_are_known(mechanism: str, protocol: str, is_clear: bool) -> None:
    jaas = f'{PLAIN} required username="a" password="b" unsecuredLoginStringClaim_sub="a";'
    settings = [f"security.protocol={protocol}", f"sasl.mechanism={mechanism}", f"sasl.jaas.config={jaas}"]
    assert load_client_properties(None, settings).sends_login_in_clear is is_clear


@pytest.mark.parametrize(
    "servers, is_loopback",
    [
        ("localhost:9092", True),
        ("127.0.0.1:1, [::1]:2,Localhost.:3", True),
        ("::1:9092", True),
        ("localhost:9092,broker:9092", False),
        ("localhost.example:9092", False),
        ("10.0.0.1:9092", False),
    ],
)
def test_which_servers_are_this_machine(servers: str, is_loopback: bool) -> None:
    assert are_loopback(servers) is is_loopback
