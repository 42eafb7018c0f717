"""docs/gateway.md names the options and settings that there are, with their defaults."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from kquota.cli.servers.gateway import gateway
from kquota.config import CALLBACK_SETTING, BrokerConfig, ConnectionLimits
from kquota.errors import InputError
from kquota.gateway.assembly import DEFAULT_LIMITS
from kquota.gateway.identity.sasl_observer import BUILDER_SETTINGS, IDENTITY_SETTINGS
from kquota.gateway.settings import GatewaySettings, load_gateway_settings
from kquota.gateway.topology import DEFAULT_PORTS, NodePorts

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "gateway.md").read_text("utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title: str) -> list[tuple[list[str], str]]:
    """Of the tables of a section, the names in the first cell of each row, and the text of the second."""
    found = re.findall(r"^\| (`.+?) \| (.*?) \|", section(title), re.MULTILINE)
    return [(re.findall(r"`([^`]+)`", names), text) for names, text in found]


SETTINGS = [(name, text) for names, text in rows("Settings") for name in names]
BROKERS = {field.name.replace("_", ".") for field in fields(BrokerConfig)}
LIMITS = {field.name.replace("_", "."): field.name for field in fields(ConnectionLimits)}


@pytest.mark.parametrize("name", [name for name, _ in SETTINGS])
def test_a_setting_that_the_page_names_exists(name: str) -> None:
    if name.startswith("gateway.") and name not in IDENTITY_SETTINGS:
        with pytest.raises(InputError) as refused:
            load_gateway_settings({name: "?"})
        assert "there is no such setting" not in str(refused.value)
    else:
        known = {*BROKERS, *LIMITS, *IDENTITY_SETTINGS, CALLBACK_SETTING, f"{BUILDER_SETTINGS}*"}
        assert name in known


def test_every_setting_of_the_gateway_is_on_a_page() -> None:
    pages = PAGE + (DOCS / "metrics.md").read_text("utf-8")
    own = {f"gateway.{field.name.replace('_', '.')}" for field in fields(GatewaySettings)} - {"gateway.identity"}
    assert {name for name in own | set(IDENTITY_SETTINGS) if f"`{name}`" not in pages} == set()


def test_the_defaults_are_those_of_the_code() -> None:
    given = {name: int(text) for name, text in SETTINGS if text.isdigit()}
    own = {f"gateway.{field.name.replace('_', '.')}": field.default for field in fields(GatewaySettings)}
    limits = {name: getattr(DEFAULT_LIMITS, field) for name, field in LIMITS.items()}
    assert given.keys() >= {"gateway.drain.ms", "max.connections"}
    assert given == {name: (own | limits)[name] for name in given}


def test_every_option_is_on_the_page_and_no_other() -> None:
    options = {name for option in gateway.params for name in option.opts if name not in ("-h", "--help", "--define")}
    named = {re.split(r"[ ,]", name)[0] for names, _ in rows("Options") for name in names}
    assert named == options


def test_the_ports_of_its_examples_are_those_that_brokers_get() -> None:
    ports = NodePorts(9193)
    assert ports.count == DEFAULT_PORTS
    assert "broker 0 is on 9193, broker 1 on 9194, broker 101 on 9194 again" in PAGE
    assert [ports.of(one) for one in (0, 1, 101)] == [9193, 9194, 9194]
