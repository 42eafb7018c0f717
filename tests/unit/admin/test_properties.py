"""The settings of a Java client, read as Kafka's own tools read them."""

from __future__ import annotations

import json
import os
import ssl
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Any

import pytest

from kquota.admin.properties import load_client_properties
from kquota.errors import InputError
from tests.kit.tls import PASSWORD, Authority

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def test_nothing_is_plaintext() -> None:
    assert dict(load_client_properties().connection) == {"security_protocol": "PLAINTEXT"}


def test_a_file_and_what_overrides_it(tmp_path: Path) -> None:
    """Spelled as Java reads properties; what means nothing here is left aside."""
    path = tmp_path / "admin.properties"
    path.write_text(
        "# comment\nsecurity.protocol = SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={SCRAM} required \\\n  username="alice" \\\n  password="a\\\\"b;c d";\n'
        "client.id=ops\ndefault.api.timeout.ms=1234\nrequest.timeout.ms=99\nsasl.login.refresh.buffer.seconds=5\n"
        "bootstrap.servers=a:1,b:2\nkey.serializer=whatever\n"
    )
    found = load_client_properties(str(path), ["client.id=typed", "sasl.mechanism=SCRAM-SHA-512"])
    assert (found.client_id, found.timeout_ms) == ("typed", 1234)
    assert dict(found.connection) == {
        "security_protocol": "SASL_PLAINTEXT",
        "request_timeout_ms": 99,
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": 'a"b;c d',
    }


@pytest.mark.parametrize("mechanism, name", [("PLAIN", "a=b,c"), ("SCRAM-SHA-256", "a=3Db=2Cc")])
def test_a_name_is_escaped_where_scram_needs_it(mechanism: str, name: str) -> None:
    found = load_client_properties(
        None,
        [
            "security.protocol=SASL_PLAINTEXT",
            f"sasl.mechanism={mechanism}",
            f"sasl.jaas.config={SCRAM} required username='a=b,c' password=secret;",
        ],
    )
    assert found.connection["sasl_plain_username"] == name
    assert found.connection["sasl_plain_password"] == "secret"


def test_an_unsecured_token_has_the_claims() -> None:
    found = load_client_properties(
        None,
        [
            "security.protocol=SASL_PLAINTEXT",
            "sasl.mechanism=OAUTHBEARER",
            f'sasl.jaas.config={OAUTH} required unsecuredLoginStringClaim_sub="alice";',
        ],
    )
    token: str = found.connection["sasl_oauth_token_provider"]()
    header, claims, signature = token.split(".")
    assert json.loads(urlsafe_b64decode(header + "==")) == {"alg": "none"}
    decoded = json.loads(urlsafe_b64decode(claims + "=="))
    assert decoded["sub"] == "alice"
    assert decoded["exp"] - decoded["iat"] == 3600
    assert signature == ""


SASL = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-256"]


@pytest.mark.parametrize(
    "settings, reason",
    [
        (["nonsense"], "key=value"),
        (["security.protocol=TLS"], "PLAINTEXT, SSL"),
        (["security.protocol=SASL_PLAINTEXT"], "GSSAPI"),
        (["security.providers=x"], "does not offer"),
        (["ssl.cipher.suites=X"], "does not offer"),
        (["sasl.client.callback.handler.clas=X"], "does not offer"),
        (["sasl.mechanism=MAGIC", *SASL[:1]], "one of PLAIN"),
        (SASL, "needs a name and a password"),
        ([*SASL, "sasl.jaas.config=nonsense"], "MODULE required"),
        ([*SASL, f'sasl.jaas.config={SCRAM} required username="a;'], "write name="),
        ([*SASL, f'sasl.jaas.config={SCRAM} required username="a" password=hunter2 tokenauth=true;'], "delegation"),
        ([SASL[0], "sasl.mechanism=OAUTHBEARER"], "token.endpoint.url"),
        (
            [SASL[0], "sasl.mechanism=OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url=http://x/"],
            "client id and secret",
        ),
        (["request.timeout.ms=soon"], "milliseconds"),
        (["security.protocol=SSL", "ssl.endpoint.identification.algorithm=ldaps"], "https, or nothing"),
        (["security.protocol=SSL", "ssl.enabled.protocols=TLSv1"], "TLSv1.2"),
        (["security.protocol=SSL", "ssl.truststore.location=missing.pem"], "cannot be read"),
        (["security.protocol=SSL", "ssl.truststore.certificates=nonsense"], "not certificates"),
        (["security.protocol=SSL", "ssl.keystore.key=x"], "both be set"),
    ],
)
def test_what_cannot_be_used_is_refused(settings: list[str], reason: str) -> None:
    """Security is honoured or refused, and a password is never repeated."""
    with pytest.raises(InputError, match=reason) as refused:
        load_client_properties(None, settings)
    assert "hunter2" not in str(refused.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InputError, match=r"missing\.properties: cannot read the client's settings"):
        load_client_properties("missing.properties")


@pytest.mark.parametrize("magic, kind", [(b"\xfe\xed\xfe\xed", "JKS"), (b"\xce\xce\xce\xce", "JCEKS")])
@pytest.mark.parametrize("store", ["truststore", "keystore"])
def test_java_stores_are_refused_with_what_converts_them(magic: bytes, kind: str, store: str, tmp_path: Path) -> None:
    path = tmp_path / "kafka.jks"
    path.write_bytes(magic + b"\0\0\0\2")
    with pytest.raises(InputError, match=f"is a {kind} store") as refused:
        load_client_properties(None, ["security.protocol=SSL", f"ssl.{store}.location={path}"])
    assert f"keytool -importkeystore -srckeystore {path} -destkeystore {tmp_path}/kafka.p12" in str(refused.value)
    assert f"ssl.{store}.location={tmp_path}/kafka.p12" in str(refused.value)


def context(*settings: str) -> ssl.SSLContext:
    found = load_client_properties(None, ["security.protocol=SSL", *settings]).connection["ssl_context"]
    assert isinstance(found, ssl.SSLContext)
    return found


def test_trust_stores(authority: Authority, tmp_path: Path) -> None:
    """PEM with remarks between, PEM in the setting, PKCS12: all trust the authority, and no other."""
    pem = tmp_path / "ca.pem"
    pem.write_text(f"Authority caf\u00e9\n{authority.certificate_pem()}", encoding="utf-8")
    store = tmp_path / "ca.p12"
    store.write_bytes(authority.trust_store())
    for settings in (
        [f"ssl.truststore.location={pem}"],
        [f"ssl.truststore.certificates={authority.certificate_pem()}", "ssl.truststore.type=PEM"],
        [f"ssl.truststore.location={store}", f"ssl.truststore.password={PASSWORD}"],
    ):
        found = context(*settings)
        [trusted] = found.get_ca_certs()
        assert trusted["subject"] == ((("commonName", "authority"),),)
        assert found.check_hostname
        assert found.verify_mode == ssl.CERT_REQUIRED


def test_a_wrong_password_is_told(authority: Authority, tmp_path: Path) -> None:
    """Never asked for on the terminal."""
    store = tmp_path / "ca.p12"
    store.write_bytes(authority.trust_store())
    with pytest.raises(InputError, match=r"ssl\.truststore\.password opens"):
        context(f"ssl.truststore.location={store}", "ssl.truststore.password=wrong")
    own = authority.issue("client").write_pem(tmp_path / "own.pem", "key-secret")
    for password in ("", "ssl.key.password=wrong"):
        with pytest.raises(InputError, match=r"ssl\.key\.password"):
            context(f"ssl.keystore.location={own}", *filter(None, [password]))
    context(f"ssl.keystore.location={own}", "ssl.key.password=key-secret")


@pytest.mark.parametrize("password", [None, "key-secret"])
def test_no_key_is_copied_without_a_password(
    password: str | None, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key store in PEM is read where it is, remarks between included; one in the settings is encrypted."""
    read: list[tuple[Path, str]] = []
    load = ssl.SSLContext.load_cert_chain

    def watched(self: ssl.SSLContext, path: str, *arguments: Any, **options: Any) -> None:
        read.append((Path(path), Path(path).read_text("utf-8")))
        load(self, path, *arguments, **options)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    own = authority.issue("client")
    store = tmp_path / "own.pem"
    store.write_text(f"caf\u00e9\n{own.certificate_pem()}Key of\r\n{own.key_pem(password)}", "utf-8")
    given = [] if password is None else [f"ssl.key.password={password}"]
    context(f"ssl.keystore.location={store}", *given)
    assert [path for path, _ in read] == [store]
    read.clear()
    chain = f"ssl.keystore.certificate.chain={own.certificate_pem()}"
    context(f"ssl.keystore.key={own.key_pem(password)}", chain, *given)
    reading, writing = os.pipe()
    os.write(writing, store.read_bytes())
    os.close(writing)
    context(f"ssl.keystore.location=/dev/fd/{reading}", *given)
    os.close(reading)
    for path, content in read:
        assert "BEGIN ENCRYPTED PRIVATE KEY" in content
        assert content.count("PRIVATE KEY-----") == 2
        assert not path.exists()


def test_a_key_that_is_none(authority: Authority) -> None:
    """Neither is repeated."""
    broken = "-----BEGIN PRIVATE KEY-----\nTOPSECRET\n-----END PRIVATE KEY-----"
    chain = f"ssl.keystore.certificate.chain={authority.certificate_pem()}"
    with pytest.raises(InputError, match=r"ssl\.keystore\.key: a private key") as refused:
        context(f"ssl.keystore.key={broken}", chain)
    assert "TOPSECRET" not in str(refused.value)


def test_versions_and_host_names(authority: Authority) -> None:
    assert context("ssl.protocol=TLSv1.3").minimum_version == ssl.TLSVersion.TLSv1_2
    assert context("ssl.protocol=TLSv1.2").maximum_version == ssl.TLSVersion.TLSv1_2
    found = context("ssl.enabled.protocols=TLSv1.2,TLSv1.3")
    assert found.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context("ssl.enabled.protocols=TLSv1.2").maximum_version == ssl.TLSVersion.TLSv1_2
    unchecked = context("ssl.endpoint.identification.algorithm=")
    assert not unchecked.check_hostname
    assert unchecked.verify_mode == ssl.CERT_REQUIRED
