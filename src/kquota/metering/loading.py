"""A callback by its name: what ``client.quota.callback.class`` says."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final

from kquota.config import CALLBACK_SETTING
from kquota.errors import InputError
from kquota.metering.callback import ClientQuotaCallback

__all__ = ["ENTRY_POINTS", "load_callback"]

ENTRY_POINTS: Final = "kquota.callbacks"
_METHODS: Final = [
    name for name, member in vars(ClientQuotaCallback).items() if callable(member) and not name.startswith("_")
]


def load_callback(name: str) -> ClientQuotaCallback:
    """A new callback of the class ``package.module:Class``, or of an installed entry point such as ``groups``.

    :raises InputError: there is no such class, it cannot be made without arguments, or it lacks a method.
    """
    made = _class(name)
    try:
        callback = made()
    except Exception as error:
        raise InputError(f"{CALLBACK_SETTING}={name}: it cannot be made: {error!r}") from error
    missing = [method for method in _METHODS if not callable(getattr(callback, method, None))]
    if missing:
        raise InputError(f"{CALLBACK_SETTING}={name}: it is no callback: there is no {', '.join(missing)}")
    found: ClientQuotaCallback = callback
    return found


def _class(name: str) -> Any:
    module_name, colon, attribute = name.partition(":")
    if not colon:
        installed = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
        if name not in installed:
            raise InputError(
                f"{CALLBACK_SETTING}={name}: write it as package.module:Class, or name one that is installed: "
                f"{', '.join(sorted(installed)) or 'there is none'}"
            )
        module_name, attribute = installed[name].module, installed[name].attr
    try:
        return getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"{CALLBACK_SETTING}={name}: there is no such class: {error}; write it as package.module:Class"
        ) from error
    except Exception as error:
        raise InputError(f"{CALLBACK_SETTING}={name}: {module_name} cannot be imported: {error!r}") from error
