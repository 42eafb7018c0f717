"""Settings of the broker that quotas are enforced by."""

from __future__ import annotations

from dataclasses import dataclass

from kquota.cli.options.paths import as_path
from kquota.cli.options.taking import option
from kquota.config import BrokerConfig, load_broker_config

__all__ = ["BrokerOptions"]


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """``--broker-config`` and ``-D``."""

    broker_config: str | None = option(
        "--broker-config",
        callback=as_path,
        metavar="FILE",
        help="The broker's server.properties: static quota defaults, quota windows, threads.",
    )
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
