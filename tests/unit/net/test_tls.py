"""TLS of a listener by a broker's settings."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from kquota.errors import InputError
from kquota.net.tls import TlsFiles, server_context, tls_files
from tests.kit.tls import PASSWORD, Authority


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def test_a_listeners_own_settings_go_before_those_without_a_name() -> None:
    settings = {
        "ssl.keystore.location": "common.p12",
        "ssl.keystore.password": "common",
        "ssl.enabled.protocols": "TLSv1.2, TLSv1.3",
        "listener.name.external.ssl.keystore.location": " external.p12 ",
        "listener.name.external.ssl.enabled.protocols": "",
        "listener.name.internal.ssl.keystore.location": "internal.p12",
    }
    assert tls_files(settings, "listener.name.external.") == TlsFiles(
        keystore="external.p12", keystore_password="common"
    )
    assert tls_files(settings) == TlsFiles(
        keystore="common.p12", keystore_password="common", versions=("TLSv1.2", "TLSv1.3")
    )


def test_a_key_may_be_in_pem_or_pkcs12_or_in_the_setting(authority: Authority, tmp_path: Path) -> None:
    own = authority.issue("broker")
    store = tmp_path / "own.p12"
    store.write_bytes(own.pkcs12())
    trust = tmp_path / "ca.p12"
    trust.write_bytes(authority.trust_store())
    for files in (
        TlsFiles(keystore=str(own.write_pem(tmp_path / "own.pem", "secret")), key_password="secret"),
        TlsFiles(keystore=str(store), keystore_password=PASSWORD),
        TlsFiles(key_pem=own.key_pem(), chain_pem=own.certificate_pem()),
    ):
        assert server_context(files).verify_mode == ssl.CERT_NONE
    trusting = TlsFiles(
        keystore=str(store), keystore_password=PASSWORD, truststore=str(trust), truststore_password=PASSWORD
    )
    for client_auth, expected in (("required", ssl.CERT_REQUIRED), ("requested", ssl.CERT_OPTIONAL)):
        context = server_context(trusting, client_auth=client_auth)  # type: ignore[arg-type] # a plain text
        assert context.verify_mode == expected
        [trusted] = context.get_ca_certs()
        assert trusted["subject"] == ((("commonName", "authority"),),)


def test_what_cannot_be_used_is_refused(authority: Authority, tmp_path: Path) -> None:
    own = str(authority.issue("broker").write_pem(tmp_path / "own.pem"))
    jks = tmp_path / "kafka.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    for files, reason in (
        (TlsFiles(), "ssl.keystore.location: a listener with TLS needs a key"),
        (TlsFiles(keystore=own), "ssl.client.auth=required: set ssl.truststore.location"),
        (TlsFiles(keystore=str(tmp_path / "no.p12")), "no.p12: cannot be read"),
        (TlsFiles(keystore=str(jks)), "ssl.keystore.location=.*kafka.p12"),
        (TlsFiles(keystore=own, versions=("TLSv1.1",)), "ssl.enabled.protocols"),
        (TlsFiles(keystore=own, cipher_suites=("TLS_MAGIC",)), "ssl.cipher.suites: TLS_MAGIC is not offered"),
        (TlsFiles(keystore=own, cipher_suites=("ALL",)), "ssl.cipher.suites: ALL is not offered"),
        (TlsFiles(keystore=own, cipher_suites=("TLS_AES_256_GCM_SHA384",)), "TLS 1.3 cannot be chosen one by one"),
        (
            TlsFiles(keystore=own, cipher_suites=("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",), versions=("TLSv1.3",)),
            "none of them is of a version",
        ),
    ):
        with pytest.raises(InputError, match=reason):
            server_context(files, client_auth="required")


@pytest.mark.parametrize(
    "name, openssl",
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
    ],
)
def test_cipher_suites_have_the_names_of_java(authority: Authority, tmp_path: Path, name: str, openssl: str) -> None:
    own = str(authority.issue("broker").write_pem(tmp_path / "own.pem"))
    of_12 = server_context(TlsFiles(keystore=own, cipher_suites=(name,)))
    assert of_12.maximum_version == ssl.TLSVersion.TLSv1_2
    assert [one["name"] for one in of_12.get_ciphers() if one["protocol"] != "TLSv1.3"] == [openssl]
    of_13 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
    both = server_context(TlsFiles(keystore=own, cipher_suites=(name, *of_13)))
    assert (both.minimum_version, both.maximum_version) == (
        ssl.TLSVersion.TLSv1_2,
        ssl.TLSVersion.MAXIMUM_SUPPORTED,
    )
    alone = server_context(TlsFiles(keystore=own, cipher_suites=of_13))
    assert alone.minimum_version == ssl.TLSVersion.TLSv1_3
