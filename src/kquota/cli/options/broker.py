"""Settings of the broker that quotas are enforced by."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kquota.cli.options.paths import as_path
from kquota.cli.options.taking import option
from kquota.config import BrokerConfig, load_broker_config, read_properties
from kquota.errors import InputError

__all__ = ["BrokerOptions", "StaticDefaultOptions", "broker_options", "key_value_pairs"]


def _file_option(what: str) -> Any:
    return option("--broker-config", callback=as_path, metavar="FILE", help=f"The broker's server.properties: {what}")


@dataclass(frozen=True)
class BrokerOptions:
    """``--broker-config`` and ``-D``."""

    broker_config: str | None = _file_option("static quota defaults, quota windows, threads.")
    defines: tuple[str, ...] = option(
        "-D",
        "--define",
        multiple=True,
        metavar="KEY=VALUE",
        help="A broker setting, over those of --broker-config. Repeatable.",
    )

    def load(self, *, has_callback: bool = False) -> BrokerConfig:
        """The settings.

        :param has_callback: whether a callback is asked, whatever the broker's own settings say of one.
        :raises InputError: they cannot be used.
        """
        return load_broker_config(self.broker_config, self.defines, has_callback=has_callback)

    def for_callback(self) -> dict[str, str]:
        """What a broker hands to its quota callback: all settings as text, but its id, since each broker has its own.

        :raises InputError: the file cannot be read, or a setting is not written as key=value.
        """
        configs: dict[str, str] = {}
        if self.broker_config is not None:
            configs |= read_properties(self.broker_config, "the broker's settings")
            for name in ("broker.id", "node.id"):
                configs.pop(name, None)
        return configs | key_value_pairs(self.defines, "-D")


def broker_options(what: str) -> type[BrokerOptions]:
    """The options of a command to which other settings of the broker matter: `what`."""
    field = ("broker_config", "str | None", _file_option(what))
    return dataclasses.make_dataclass("BrokerOptions", [field], bases=(BrokerOptions,), frozen=True)


StaticDefaultOptions = broker_options(
    "quota.producer.default and quota.consumer.default (Kafka before 3.0); nothing else matters here."
)
"""For commands that resolve, and measure nothing."""


def key_value_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """Settings as they are given one by one.

    :raises InputError: one is not written as key=value.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InputError(f"{option} {text}: write it as key=value")
        pairs[key.strip()] = value
    return pairs
