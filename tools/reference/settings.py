"""The page of settings: of brokers, connections and the gateway, and where all options can be set."""

from dataclasses import MISSING, Field, fields
from typing import Any

from kquota.config import CALLBACK_SETTING, BrokerConfig, ConnectionLimits
from kquota.gateway.assembly import DEFAULT_LIMITS
from kquota.gateway.identity.principals import BUILDER_SETTING
from kquota.gateway.identity.sasl_observer import (
    BUILDER_SETTINGS,
    SUB_CLAIM_SETTING,
    UNKNOWN_PRINCIPAL_SETTING,
    IdentitySettings,
)
from kquota.gateway.settings import GatewaySettings
from tools.reference.commands import shared_options, taking
from tools.reference.markdown import attribute_docs, code, listed, table

PREFIX = "gateway."
OFF = code("off")
"""How the default of `gateway.request.time` is written."""

PAGE = """\
# Settings

Given as `-D key=value`, or in a Java properties file such as a broker's own `server.properties`, by `--broker-config`;
`-D` goes first. Commands that take them: {commands}.

## How brokers count

The names and defaults are Kafka's.

{broker}

`{callback}` names a [quota callback](../callbacks/README.md).

## What clients may use

Of `kquota serve` and `kquota gateway`, with the default of each.

{connections}

## Of the gateway

{gateway}

Other settings that begin with `{builder}` are given to the [principal builder](../gateway.md#a-principal-by-address).

## Environment and settings file

An option that is not on the command line is taken from the environment, `KQUOTA_` and its name in capitals with `_` for
`-` (`KQUOTA_BOOTSTRAP_SERVER`); then from the TOML file of `--config` (`KQUOTA_CONFIG`), first from the table of the
command (`[pipeline.ingest]`), then from the tables around it. An option that can be repeated is a list in the file, and
has a line for each value in the environment.

At the top of the file, for all commands, can be: {shared}. `[entity_types]` names
[entity types of your own](../entity-types.md).
"""


def settings_page() -> str:
    """The settings of `-D key=value` and `--broker-config`, by what they are of; then environment and settings file."""
    return PAGE.format(
        commands=listed(taking("--define")),
        broker=table(["setting", "default>", ""], broker_rows()),
        connections=table(["setting", "serve>", "gateway>", ""], connection_rows()),
        gateway=table(["setting", "default>", ""], gateway_rows()),
        builder=BUILDER_SETTINGS,
        callback=CALLBACK_SETTING,
        shared=listed(shared_options()),
    )


def shown(value: object) -> str:
    """A default as it would be written in a file; nothing for none."""
    match value:
        case None | frozenset() | ():
            return ""
        case bool():
            return code(str(value).lower())
        case _:
            return str(value)


def default_of(field: "Field[Any]") -> object:
    return None if field.default is MISSING else field.default


def setting_name(field: "Field[Any]") -> str:
    return field.name.replace("_", ".")


def broker_rows() -> list[tuple[str, str, str]]:
    docs = attribute_docs(BrokerConfig)
    return [(code(setting_name(one)), shown(default_of(one)), docs[one.name]) for one in fields(BrokerConfig)]


def connection_rows() -> list[tuple[str, str, str, str]]:
    docs = attribute_docs(ConnectionLimits)
    return [
        (code(setting_name(one)), shown(default_of(one)), shown(getattr(DEFAULT_LIMITS, one.name)), docs[one.name])
        for one in fields(ConnectionLimits)
    ]


def gateway_rows() -> list[tuple[str, str, str]]:
    docs, identity = attribute_docs(GatewaySettings), attribute_docs(IdentitySettings)
    own = [
        (
            code(PREFIX + setting_name(one)),
            OFF if one.name == "request_time" else shown(default_of(one)),
            docs[one.name],
        )
        for one in fields(GatewaySettings)
        if one.name != "identity"
    ]
    return [
        *own,
        (code(BUILDER_SETTING), "", "The class that makes principals of clients: `package.module:Class`."),
        (code(UNKNOWN_PRINCIPAL_SETTING), code("refuse"), identity["unknown_principal"]),
        (code(SUB_CLAIM_SETTING), code("sub"), identity["sub_claim_name"]),
    ]
