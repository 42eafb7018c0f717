"""What a callback is given: the broker's settings and its own, the cluster, and the modules of the directory."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from kquota.cli.options.broker import BrokerOptions, key_value_pairs
from kquota.cli.options.paths import as_path
from kquota.cli.options.taking import option
from kquota.config import is_read_from_broker, read_properties
from kquota.errors import InputError
from kquota.metering.cluster import Cluster
from kquota.metering.cluster_json import cluster_from_json

__all__ = ["CallbackOptions", "import_from_here"]


@dataclass(frozen=True, slots=True)
class CallbackOptions:
    """What a callback is given beside the broker's settings: ``--callback-config``, ``-C``, ``--cluster-metadata``."""

    callback_config: str | None = option(
        "--callback-config", callback=as_path, metavar="FILE", help="The callback's settings, a Java properties file."
    )
    settings: tuple[str, ...] = option(
        "-C",
        "--callback-setting",
        multiple=True,
        metavar="KEY=VALUE",
        help="One of its settings, over those of --callback-config. Repeatable.",
    )
    cluster_metadata: str | None = option(
        "--cluster-metadata",
        callback=as_path,
        metavar="FILE",
        help="Who leads which partition, all the time, as `kquota callback cluster` writes it.  "
        "[default: no partitions]",
    )

    def __bool__(self) -> bool:
        """Whether any are given."""
        return self.callback_config is not None or bool(self.settings) or self.cluster_metadata is not None

    def load(self, broker: BrokerOptions) -> dict[str, str]:
        """What a broker would hand to the callback: its own settings, and the callback's.

        :raises InputError: a file cannot be read, a setting is not written as key=value, or is given to the callback
            though it is the broker's.
        """
        own = {}
        if self.callback_config is not None:
            own = read_properties(self.callback_config, "the callback's settings")
        own |= key_value_pairs(self.settings, "-C")
        for key in own:
            if is_read_from_broker(key):
                raise InputError(f"{key} is the broker's setting, not the callback's: give it by -D or --broker-config")
        return broker.for_callback() | own

    def cluster(self) -> Cluster:
        """The cluster that ``kquota callback cluster`` wrote; without a file one of which nothing is known.

        :raises InputError: it cannot be read.
        """
        if self.cluster_metadata is None:
            return Cluster()
        where = f"--cluster-metadata {self.cluster_metadata}"
        try:
            return cluster_from_json(json.loads(Path(self.cluster_metadata).read_bytes()))
        except OSError as error:
            raise InputError(f"{where}: cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise InputError(f"{where}: this is not JSON: {error}") from None
        except InputError as error:
            raise InputError(f"{where}: {error}") from None


def import_from_here() -> None:
    """So that a module in the directory is found; after all that is installed, which it must not replace."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
