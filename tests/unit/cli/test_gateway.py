"""``kquota gateway``: what cannot be used is refused before anybody is connected to."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota.cli import run

NOBODY = "127.0.0.1:1"
"""A port that nobody listens on: who connected there would end with 5."""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--upstream", "b:x"], "--upstream b:x: write it as host:port, such as localhost:9092"),
        (["--upstream", "localhost"], "--upstream localhost: write it as host:port"),
        (
            ["--upstream", "me:secret@b:9092"],
            "--upstream: write it as host:port, such as localhost:9092, without",
        ),
        (["--upstream", NOBODY, "--listen", "here"], "--listen here: write it as host:port"),
        (["--upstream", NOBODY, "--node-ports", "5"], "--node-ports 5: write it as FIRST-LAST"),
        (["--upstream", NOBODY, "--node-ports", "9300-9200"], "--node-ports 9300-9200: write it as FIRST-LAST"),
        (["--upstream", NOBODY, "--metrics", "9404"], "--metrics 9404: write it as host:port"),
        (["--upstream", NOBODY, "--quotas", "missing.yaml"], "--quotas missing.yaml: there is no such file"),
        (["--upstream", NOBODY, "-D", "gateway.drian.ms=1"], "did you mean gateway.drain.ms?"),
        (["--upstream", NOBODY, "-D", "gateway.drain.ms=soon"], "gateway.drain.ms=soon: write a whole number"),
        (["--upstream", NOBODY, "-D", "gateway.exempt.principals=admin"], "write a principal as type:name"),
        (["--upstream", NOBODY, "-D", "client.quota.callback.class=nope:X"], "there is no such class"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(given: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["gateway", *given]) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert "secret" not in printed.err


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("security.protocol=SASL_SSL", "both must be with SASL or both without"),
        ("security.protocol=SSL", "ssl.keystore"),
        ("security.protocol=TLS", "security.protocol"),
    ],
)
def test_a_listener_that_cannot_be_is_refused(
    settings: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "listener.properties"
    file.write_text(f"{settings}\n")
    assert run(["gateway", "--upstream", NOBODY, "--listener-config", str(file)]) == 2
    assert said in capfd.readouterr().err
