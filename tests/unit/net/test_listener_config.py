"""The settings of a listener, read as a broker reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota.errors import InputError
from kquota.net.listener_config import ListenerConfig, load_listener_config
from kquota.net.tls import TlsFiles


def load(folder: Path, text: str, listener: str | None = None) -> ListenerConfig:
    path = folder / "listener.properties"
    path.write_text(text, "utf-8")
    return load_listener_config(str(path), listener=listener)


def test_nothing_is_plaintext(tmp_path: Path) -> None:
    for config in (load_listener_config(None), load(tmp_path, "num.io.threads=8\n")):
        assert config == ListenerConfig()
        assert (config.security_protocol, config.has_tls, config.has_sasl) == ("PLAINTEXT", False, False)
        assert config.sasl_mechanisms == ()
        assert config.tls_context() is None


def test_all_that_can_be_set(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "security.protocol=sasl_ssl\nssl.keystore.location=own.p12\nssl.keystore.password=a b\n"
        "ssl.keystore.type=PKCS12\nssl.client.auth=requested\nssl.truststore.location=ca.pem\n"
        "ssl.principal.mapping.rules=RULE:^CN=(.*?),.*$/$1/L,DEFAULT\nsasl.enabled.mechanisms=SCRAM-SHA-512, PLAIN,PLAIN\nbroker.id=3\nlisteners=SASL_SSL://:9092\n",
    )
    assert (config.security_protocol, config.has_tls, config.has_sasl) == ("SASL_SSL", True, True)
    assert config.tls == TlsFiles(keystore="own.p12", keystore_password="a b", truststore="ca.pem")
    assert config.client_auth == "requested"
    assert config.sasl_mechanisms == ("SCRAM-SHA-512", "PLAIN")
    assert config.principal_rules.principal("CN=Alice,O=x") == "alice"
    assert config.principal_rules.principal("O=x") == "O=x"


def test_a_listener_has_settings_of_its_own(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "security.protocol=PLAINTEXT\nlistener.name.external.security.protocol=SSL\nssl.client.auth=required\n"
        "listener.name.external.ssl.keystore.location=own.p12\nlistener.name.other.ssl.keystore.locatoin=x\n"
        "listener.name.external.ssl.client.auth=none\n",
        "EXTERNAL",
    )
    assert config == ListenerConfig("SSL", TlsFiles(keystore="own.p12"))


@pytest.mark.parametrize(
    "text, reason",
    [
        ("security.protocol=TLS", "security.protocol: one of PLAINTEXT, SASL_PLAINTEXT"),
        ("security.protocol=SSL\nssl.client.auth=yes", "ssl.client.auth: one of none, requested"),
        ("ssl.keystore.location=own.p12", "ssl.keystore.location has no effect without security.protocol"),
        ("security.protocol=SSL\nssl.keystore.locaton=x", "did you mean ssl.keystore.location"),
        ("security.protocol=SSL\nssl.engine.factory.class=x", "does not offer this setting"),
        ("sasl.jaas.config=hunter2", "sasl.jaas.config: leave it out: clients are authenticated by the broker"),
        ("listener.name.a.ssl.keystore.location=x", "write the setting without the listener's name"),
        ("principal.builder.class=x", "does not offer this setting"),
        ("security.protocol=SSL\nssl.principal.mapping.rules=CN=(.*)", "write it as DEFAULT or RULE"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    """With the file's name; and no secret is repeated."""
    with pytest.raises(InputError, match=reason) as refused:
        load(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path}/listener.properties: ")
    assert "hunter2" not in str(refused.value)


def test_a_key_store_is_read_when_it_is_needed(tmp_path: Path) -> None:
    config = load(tmp_path, f"security.protocol=SSL\nssl.keystore.location={tmp_path}/own.p12\n")
    with pytest.raises(InputError, match=r"own\.p12: cannot be read"):
        config.tls_context()
