"""``kafka-client-quotas``: what it takes, and what it refuses before anything is sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.cli.kafka_client_quotas import run, split_list
from kquota.errors import InputError

NOWHERE = ["--bootstrap-server", "127.0.0.1:1"]


@pytest.mark.parametrize(
    "arguments, reason",
    [
        ("", "exactly one of"),
        ("--describe --alter", "exactly one of"),
        ("--describe --add=a=1", "--add goes with --alter"),
        ("--describe --delete=a", "--delete goes with --alter"),
        ("--resolve --names=user=a --validate-only", "--validate-only goes with --alter"),
        ("--resolve --names=user=a --prefix=user=b", "--prefix goes with --describe"),
        ("--describe --show-overridden", "--show-overridden goes with --resolve"),
        ("--describe -D quota.producer.default=1", "-D goes with --resolve"),
        ("--describe --broker-config=server.properties", "--broker-config goes with --resolve"),
        ("--resolve --names=user=a -D quota.produce.default=1", "did you mean quota.producer.default"),
        ("--resolve", "one client"),
        ("--resolve --names=user=a --defaults=client-id", "one client"),
        ("--describe --names=user", "write it as type=name"),
        ("--describe --names==a", "write it as type=name"),
        ("--describe --names=user=a,", "write it as type=name"),
        ("--describe --names=user=", "--defaults=user"),
        ("--describe --names=user=a,user=b", "given twice"),
        ("--describe --names=user=a --defaults=user", "given twice"),
        ("--describe --names=user=a --prefix=user=b", "given twice"),
        ("--describe --defaults=user,user", "given twice"),
        ("--describe --defaults=user=a", "types alone"),
        ("--describe --defaults=", "types alone"),
        (r"--describe --names=user=a\b", "backslash"),
        ("--describe --names=user=a\\", "backslash"),
        ("--alter --names=user=a", "something to change"),
        ("--alter --add=producer_byte_rate=1", "needs an entity"),
        ("--alter --names=user=a --add=producer_byte_rate", "write it as key=value"),
        ("--alter --names=user=a --add=producer_byte_rate=x", "is not a number"),
        ("--alter --names=user=a --add=k=1,k=2", "k is given twice"),
        ("--alter --names=user=a --add=k=1 --delete=k", "k is given twice"),
        ("--alter --names=user=a --delete=k=1", "keys alone"),
        ("--alter --names=user=a --add=producer_byte_rate:shares=100", "units"),
        ("--alter --names=user=a --delete=producer_byte_rate:broker_bps", "units"),
        ("--describe --unknown", "No such option"),
        ("--describe --command-config=missing.properties", "missing.properties"),
    ],
)
def test_what_cannot_be_used_is_refused(arguments: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With what to write instead, and exit code 1 as Kafka's tools have it."""
    assert run([*NOWHERE, *arguments.split()]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert reason in err


@pytest.mark.parametrize("address", ["localhost", "localhost:", "localhost:0", "localhost:99999", ":9092", "a:1,b"])
def test_an_address_needs_a_port(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--bootstrap-server", address, "--describe"]) == 1
    assert "host:port" in capsys.readouterr().err


def test_the_bootstrap_server_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--describe"]) == 1
    assert "--bootstrap-server" in capsys.readouterr().err


def test_help_has_every_flag_of_the_kip(capsys: pytest.CaptureFixture[str]) -> None:
    """And those of its draft."""
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    accepted = "bootstrap-server command-config describe resolve alter names defaults add delete validate-only"
    for flag in (*accepted.split(), "list", "prefix", "show-overridden"):
        assert f"--{flag}" in out


@given(st.lists(st.text(st.sampled_from(r",\=ab"), max_size=5), min_size=1))
def test_any_items_can_be_listed(items: list[str]) -> None:
    """Escaping commas and backslashes is enough."""
    text = ",".join(item.replace("\\", "\\\\").replace(",", "\\,") for item in items)
    assert split_list(text) == items


def test_a_lone_backslash_is_a_mistake() -> None:
    with pytest.raises(InputError, match="backslash"):
        split_list("a\\n")
