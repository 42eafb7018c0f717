"""Who a connection is charged to, by Kafka's rules and by a builder of one's own."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.errors import InputError
from kquota.gateway.identity.principals import (
    ANONYMOUS,
    AuthenticationContext,
    PrincipalRefusedError,
    build_principal,
    load_principal_builder,
    parse_principal,
)
from kquota.gateway.identity.principals_by_address import FILE_SETTING, PrincipalsByAddress
from kquota.gateway.identity.sasl_observer import load_identity_settings
from kquota.metering.callback import KafkaPrincipal

PLAINTEXT = AuthenticationContext("PLAINTEXT", "PLAINTEXT", "10.20.3.7")
ALICE = KafkaPrincipal("User", "alice")
HOST = KafkaPrincipal("User", "CN=host")


@pytest.mark.parametrize(
    "context, principal",
    [
        (PLAINTEXT, ANONYMOUS),
        (AuthenticationContext("S", "SSL", "::1"), ANONYMOUS),
        (AuthenticationContext("S", "SSL", "::1", ssl_principal=HOST, certificate_der=b"der"), HOST),
        (AuthenticationContext("S", "SASL_SSL", "::1", "PLAIN", ALICE, b"der", HOST), ALICE),
        (AuthenticationContext("S", "SASL_PLAINTEXT", "::1", "PLAIN", ALICE), ALICE),
    ],
)
def test_kafkas_own_principals(context: AuthenticationContext, principal: KafkaPrincipal) -> None:
    assert build_principal(AuthenticationContext.default_principal, context) == principal


class Certified:
    """A builder that is a class, with settings."""

    def configure(self, configs: Mapping[str, str]) -> None:
        self.prefix = configs["principal.builder.prefix"]

    def __call__(self, context: AuthenticationContext) -> KafkaPrincipal:
        return KafkaPrincipal("User", self.prefix + context.client_address)


def of_listener(context: AuthenticationContext) -> KafkaPrincipal:
    return KafkaPrincipal("User", context.listener)


def broken(context: AuthenticationContext) -> KafkaPrincipal:
    password = "TOPSECRET"
    raise RuntimeError(password)


def complaining(context: AuthenticationContext) -> KafkaPrincipal:
    raise InputError("the directory is down")


@pytest.fixture
def builders(monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of builders, by its name."""
    module = ModuleType("some_builders")
    vars(module).update(Certified=Certified, of_listener=of_listener, no_function=7, Unmade=Unmade)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.__name__


class Unmade:
    def __init__(self) -> None:
        raise RuntimeError("TOPSECRET")


def test_a_function_and_a_class_are_loaded_by_name(builders: str) -> None:
    build = load_principal_builder(f"{builders}:of_listener", {})
    assert build_principal(build, PLAINTEXT) == KafkaPrincipal("User", "PLAINTEXT")
    settings = load_identity_settings(
        {"principal.builder.class": f"{builders}:Certified", "principal.builder.prefix": "at "}
    )
    assert build_principal(settings.principal_builder, PLAINTEXT) == KafkaPrincipal("User", "at 10.20.3.7")


@pytest.mark.parametrize(
    "attribute, configs, reason",
    [
        ("", {}, "write it as package.module:callable"),
        (":", {}, "write it as package.module:callable"),
        (":nothing", {}, "there is no such callable"),
        (":no_function", {}, "cannot be called"),
        (":of_listener", {"principal.builder.x": "1"}, "has no settings, such as principal.builder.x"),
        (":Certified", {}, "cannot be made: KeyError in configure"),
        (":Unmade", {}, "cannot be made: RuntimeError in __init__"),
    ],
)
def test_a_builder_that_cannot_be_used_is_refused(
    builders: str, attribute: str, configs: dict[str, str], reason: str
) -> None:
    with pytest.raises(InputError, match=reason) as refused:
        load_principal_builder(builders + attribute, configs)
    assert "TOPSECRET" not in "".join(traceback.format_exception(refused.value))


def test_whatever_a_builder_raises_refuses_the_connection() -> None:
    """With the class of the error and its line; its text may hold anything, and is not repeated."""
    with pytest.raises(PrincipalRefusedError, match=r"failed: RuntimeError in broken, line \d+$") as refused:
        build_principal(broken, PLAINTEXT)
    assert refused.value.__context__ is None
    with pytest.raises(PrincipalRefusedError, match="failed: the directory is down"):
        build_principal(complaining, PLAINTEXT)


def test_a_builder_returns_a_principal() -> None:
    with pytest.raises(PrincipalRefusedError, match="returned a str"):
        build_principal(lambda _: "alice", PLAINTEXT)  # type: ignore[arg-type, return-value]


def test_a_principal_is_a_type_and_a_name() -> None:
    assert parse_principal("User:CN=a:b") == KafkaPrincipal("User", "CN=a:b")
    for text in ("alice", ":alice", "User:", ""):
        with pytest.raises(InputError):
            parse_principal(text)


FILE = """
# jobs
10.20.0.0/16    User:batch
10.20.3.7       User:reports of the night\r
fd00:20::/32    User:batch
fe80::/10\tGroup:near
"""


class TestByAddress:
    @pytest.mark.parametrize(
        "address, principal",
        [
            ("10.20.3.8", "User:batch"),
            ("10.20.3.7", "User:reports of the night"),
            ("10.21.0.0", "User:ANONYMOUS"),
            ("::ffff:10.20.3.7", "User:reports of the night"),
            ("fd00:20::1", "User:batch"),
            ("fd00:21::1", "User:ANONYMOUS"),
            ("fe80::1%eth0", "Group:near"),
        ],
    )
    def test_the_narrowest_network_counts(self, address: str, principal: str, tmp_path: Path) -> None:
        path = tmp_path / "addresses"
        path.write_text(FILE)
        settings = load_identity_settings(
            {
                "principal.builder.class": "kquota.gateway.identity.principals_by_address:PrincipalsByAddress",
                FILE_SETTING: str(path),
            }
        )
        found = build_principal(settings.principal_builder, replace(PLAINTEXT, client_address=address))
        assert found == parse_principal(principal)

    def test_who_authenticated_keeps_the_own_principal(self) -> None:
        build = PrincipalsByAddress()
        build.use(["0.0.0.0/0 User:everybody"], "f")
        assert build(PLAINTEXT) == KafkaPrincipal("User", "everybody")
        assert build(AuthenticationContext("S", "SASL_SSL", "10.0.0.1", "PLAIN", ALICE)) == ALICE
        assert build(AuthenticationContext("S", "SSL", "10.0.0.1", ssl_principal=HOST)) == HOST

    def test_an_address_that_is_none_is_refused(self) -> None:
        with pytest.raises(PrincipalRefusedError, match="ValueError"):
            build_principal(PrincipalsByAddress(), replace(PLAINTEXT, client_address="/tmp/socket"))

    @pytest.mark.parametrize(
        "line, reason",
        [
            ("10.0.0.1/8 User:a", "f:2: 10.0.0.1/8 has host bits set"),
            ("host User:a", "f:2: 'host' does not appear"),
            ("10.0.0.0/8", "f:2: 10.0.0.0/8 has no principal"),
            ("10.0.0.0/8 alice", "f:2: alice: write a principal"),
            ("192.0.2.1/32 User:b", "f:2: 192.0.2.1/32 has a principal already"),
        ],
    )
    def test_a_line_that_is_not_understood_is_named(self, line: str, reason: str) -> None:
        with pytest.raises(InputError, match=reason):
            PrincipalsByAddress().use(["192.0.2.1 User:a", line], "f")

    @pytest.mark.parametrize(
        "configs, reason",
        [
            ({}, "is to name the file"),
            ({FILE_SETTING: "/nowhere/at/all"}, "cannot read the principals: No such file"),
            ({FILE_SETTING: "f", "principal.builder.file": "f"}, "principal.builder.file: there is no such setting"),
        ],
    )
    def test_settings_that_cannot_be_used_are_refused(self, configs: dict[str, str], reason: str) -> None:
        with pytest.raises(InputError, match=reason):
            PrincipalsByAddress().configure(configs)

    @given(
        st.dictionaries(
            st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 32)).map(
                lambda pair: IPv4Network((pair[0] >> (32 - pair[1]) << (32 - pair[1]), pair[1]))
            ),
            st.sampled_from("abc"),
            max_size=8,
        ),
        st.integers(0, 2**32 - 1),
        st.data(),
    )
    def test_a_lookup_is_the_longest_prefix_of_all(
        self, networks: dict[IPv4Network, str], number: int, data: st.DataObject
    ) -> None:
        if networks:  # near one of them, as most addresses are in none
            network = data.draw(st.sampled_from(list(networks)))
            number = int(network.network_address) ^ (number >> data.draw(st.integers(0, 32)))
        address = IPv4Address(number)
        holding = [network for network in networks if address in network]
        name = networks[max(holding, key=lambda network: network.prefixlen)] if holding else "ANONYMOUS"
        build = PrincipalsByAddress()
        build.use([f"{network} User:{principal}" for network, principal in networks.items()], "f")
        assert build(replace(PLAINTEXT, client_address=str(address))) == KafkaPrincipal("User", name)
