"""What the files in deploy/ name is there: options of the command, settings, files."""

import configparser
import re
from dataclasses import fields
from pathlib import Path

import pytest

from kquota.admin.properties import load_client_properties
from kquota.cli.servers.gateway import gateway
from kquota.config import BrokerConfig, ConnectionLimits, load_broker_config, load_connection_limits, read_properties
from kquota.gateway.assembly import DEFAULT_LIMITS
from kquota.gateway.settings import GatewaySettings, load_gateway_settings
from kquota.gateway.topology import NodePorts
from kquota.net.listener_config import load_listener_config

DEPLOY = Path(__file__).parents[2] / "deploy"
OPTIONS = {name for option in gateway.params for name in option.opts if name.startswith("--")}
CONTAINER = (DEPLOY / "Containerfile").read_text("utf-8")


def unit() -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign] # its names have capitals
    parser.read(DEPLOY / "kquota-gateway.service", "utf-8")
    return parser["Service"]


def as_option(variable: str) -> str:
    return "--" + variable.removeprefix("KQUOTA_").lower().replace("_", "-")


def variables(text: str) -> dict[str, str]:
    """Those of KQUOTA_<OPTION>=value, commented out or not; the last one of a name."""
    return dict(re.findall(r"\b(KQUOTA_[A-Z_]+)=(\S+)", text))


@pytest.mark.parametrize("name", sorted(path.name for path in DEPLOY.iterdir() if path.suffix != ".properties"))
def test_the_options_that_a_file_names_exist(name: str) -> None:
    text = (DEPLOY / name).read_text("utf-8")
    found = {as_option(variable) for variable in variables(text)}
    for line in text.splitlines():
        _, command, arguments = line.partition("kquota-gateway --upstream")
        if command:
            found |= set(re.findall(r" (--[a-z-]+)", f" --upstream{arguments}"))
    assert found <= OPTIONS


def test_the_unit_starts_the_command_with_options_that_exist() -> None:
    program, command, *arguments = unit()["ExecStart"].split()
    assert (program, command) == ("/opt/kquota/bin/kquota", "gateway")
    assert {one for one in arguments if one.startswith("--")} <= OPTIONS


def test_the_unit_waits_longer_than_the_gateway_drains() -> None:
    assert int(unit()["TimeoutStopSec"]) * 1000 > GatewaySettings().drain_ms


def test_the_settings_are_the_gateways_with_their_defaults() -> None:
    path = str(DEPLOY / "gateway.properties")
    given = read_properties(path, "the settings")
    limits = load_connection_limits(path, defaults=DEFAULT_LIMITS)
    assert load_gateway_settings(given) == GatewaySettings()
    assert (load_broker_config(path), limits) == (BrokerConfig(), DEFAULT_LIMITS)
    others = {field.name.replace("_", ".") for of in (BrokerConfig, ConnectionLimits) for field in fields(of)}
    assert {key for key in given if not key.startswith("gateway.")} <= others


def test_the_properties_of_both_sides_are_understood(tmp_path: Path) -> None:
    listener = load_listener_config(str(DEPLOY / "listener.properties"))
    assert listener.has_sasl
    text = (DEPLOY / "upstream.properties").read_text("utf-8")
    given = tmp_path / "upstream.properties"
    given.write_text("".join(line for line in text.splitlines(keepends=True) if not line.startswith("ssl.")))
    assert load_client_properties(str(given)).connection["security_protocol"] == "SASL_SSL"


def test_the_container_exposes_the_ports_that_it_listens_on() -> None:
    given = variables(CONTAINER)
    first = int(given["KQUOTA_LISTEN"].rpartition(":")[2])
    ports = NodePorts.parse(given["KQUOTA_NODE_PORTS"])
    metrics = given["KQUOTA_METRICS"].rpartition(":")[2]
    assert ports.first == first + 1
    assert f"EXPOSE {first}-{first + ports.count} {metrics}\n" in CONTAINER
    assert f"http://127.0.0.1:{metrics}/healthz" in CONTAINER


def test_the_container_is_built_from_files_that_are_there() -> None:
    root = DEPLOY.parent
    copied = [one for line in re.findall(r"^COPY (?!--)(.+) \S+$", CONTAINER, re.MULTILINE) for one in line.split()]
    assert copied
    assert [one for one in copied if not (root / one).exists()] == []
