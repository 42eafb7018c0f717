"""What a callback is given: the broker's settings and its own, the cluster, and the modules of the directory."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from kquota.cli.options.paths import as_path
from kquota.config import is_read_from_broker, read_properties
from kquota.errors import InputError
from kquota.metering.cluster import Cluster
from kquota.metering.cluster_json import cluster_from_json

__all__ = ["callback_options", "callback_settings", "import_from_here", "read_cluster"]

F = TypeVar("F", bound=Callable[..., Any])


def callback_options(command: F) -> F:
    """What a callback is given beside the broker's settings: ``--callback-config``, ``-C``, ``--cluster-metadata``."""
    command = click.option(
        "--cluster-metadata",
        callback=as_path,
        metavar="FILE",
        help="Who leads which partition, all the time, as `kquota callback cluster` writes it.  "
        "[default: no partitions]",
    )(command)
    command = click.option(
        "-C",
        "--callback-setting",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="One of its settings, over those of --callback-config. Repeatable.",
    )(command)
    return click.option(
        "--callback-config", callback=as_path, metavar="FILE", help="The callback's settings, a Java properties file."
    )(command)


def import_from_here() -> None:
    """So that a module in the directory is found; after all that is installed, which it must not replace."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def read_cluster(path: str | None) -> Cluster:
    """The cluster in a file that ``kquota callback cluster`` wrote; without a file one of which nothing is known.

    :raises InputError: it cannot be read.
    """
    if path is None:
        return Cluster()
    try:
        return cluster_from_json(json.loads(Path(path).read_bytes()))
    except OSError as error:
        raise InputError(f"--cluster-metadata {path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"--cluster-metadata {path}: this is not JSON: {error}") from None
    except InputError as error:
        raise InputError(f"--cluster-metadata {path}: {error}") from None


def callback_settings(
    broker_config: str | None, defines: Iterable[str], callback_config: str | None, settings: Iterable[str]
) -> dict[str, str]:
    """What a broker would hand to the callback: its own settings, and the callback's.

    :raises InputError: a file cannot be read, a setting is not written as key=value, or is given to the callback though
        it is the broker's.
    """
    configs: dict[str, str] = {}
    if broker_config is not None:
        configs |= read_properties(broker_config, "the broker's settings")
        for name in ("broker.id", "node.id"):  # each broker of the traffic has its own
            configs.pop(name, None)
    configs |= _pairs(defines, "-D")
    own = {} if callback_config is None else read_properties(callback_config, "the callback's settings")
    own |= _pairs(settings, "-C")
    for key in own:
        if is_read_from_broker(key):
            raise InputError(f"{key} is the broker's setting, not the callback's: give it by -D or --broker-config")
    return configs | own


def _pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InputError(f"{option} {text}: write it as key=value")
        pairs[key.strip()] = value
    return pairs
