"""Stores as Java's own keytool writes them, and the conversion that a refused one is told."""

from __future__ import annotations

import shlex
import ssl
import subprocess
from pathlib import Path

import pytest

from examples.capture.jars import KafkaUnavailable, java
from kquota.admin.properties import load_client_properties
from kquota.errors import InputError
from tests.kit.not_run import not_run
from tests.kit.tls import PASSWORD, Authority


@pytest.fixture(scope="module")
def keytool() -> Path:
    try:
        found = Path(java()).resolve().with_name("keytool")
    except KafkaUnavailable as error:
        not_run("KAFKA", str(error))
    if not found.exists():
        not_run("COMPILER", f"{found} is not there: install a full JDK")
    return found


def trusting(*settings: str) -> list[object]:
    found = load_client_properties(None, ["security.protocol=SSL", *settings]).connection["ssl_context"]
    assert isinstance(found, ssl.SSLContext)
    return [one["subject"] for one in found.get_ca_certs()]


def test_a_trust_store_of_keytools(keytool: Path, tmp_path: Path) -> None:
    """As it is today by default: PKCS12, whatever its name says."""
    certificate = tmp_path / "ca.pem"
    certificate.write_text(Authority().certificate_pem())
    store = tmp_path / "kafka.truststore.jks"
    add: list[str | Path] = ["-importcert", "-noprompt", "-alias", "ca", "-file", certificate, "-storepass", PASSWORD]
    subprocess.run([keytool, *add, "-keystore", store], check=True, capture_output=True)
    settings = [f"ssl.truststore.location={store}", f"ssl.truststore.password={PASSWORD}", "ssl.truststore.type=JKS"]
    assert trusting(*settings) == [((("commonName", "authority"),),)]


def test_an_old_store_is_converted_as_it_says(keytool: Path, tmp_path: Path) -> None:
    """The command in the message makes a store that is taken."""
    certificate = tmp_path / "ca.pem"
    certificate.write_text(Authority().certificate_pem())
    store = tmp_path / "old truststore.jks"
    add: list[str | Path] = ["-importcert", "-noprompt", "-alias", "ca", "-file", certificate, "-storepass", PASSWORD]
    subprocess.run([keytool, *add, "-storetype", "JKS", "-keystore", store], check=True, capture_output=True)
    settings = [f"ssl.truststore.location={store}", f"ssl.truststore.password={PASSWORD}"]
    with pytest.raises(InputError, match="JKS store") as refused:
        trusting(*settings)
    [command] = [line.strip() for line in str(refused.value).splitlines() if "keytool" in line]
    passwords = ["-srcstorepass", PASSWORD, "-deststorepass", PASSWORD]
    subprocess.run([keytool, *shlex.split(command)[1:], *passwords], check=True, capture_output=True)
    [location] = [word for word in str(refused.value).split("set ")[1].split(" and ") if "location" in word]
    assert trusting(location, settings[1]) == [((("commonName", "authority"),),)]
