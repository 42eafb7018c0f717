"""``[entity_types]`` of the settings file: the types that there are beside Kafka's, for all commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import click

from kquota.cli.running import warn
from kquota.config import Settings
from kquota.errors import IllegalArgumentError, InputError
from kquota.files import QuotaFile
from kquota.quotas import KAFKA, ClientQuotaEntity, QuotaModel

__all__ = ["current_model", "kafkas_among", "leave_out_added", "set_model"]

_META: Final = "kquota.model"
_SHOWN: Final = 3
_FIELDS: Final = ("keys", "level", "meter_tag")


def current_model() -> QuotaModel:
    """The entity types and keys of the command that runs: Kafka's, and those that its settings add."""
    context = click.get_current_context(silent=True)
    model: QuotaModel = KAFKA if context is None else context.meta.get(_META, KAFKA)
    return model


def set_model(context: click.Context, settings: Settings) -> None:
    """Make the types that `settings` add known to the command that is about to run.

    :raises InputError: they cannot be added.
    """
    model = KAFKA
    for name, table in settings.entity_types.items():
        model = _with_type(model, name, table, f"{settings.path}: entity_types.{name}")
    context.meta[_META] = model


def leave_out_added(file: QuotaFile) -> QuotaFile:
    """The quotas without those on types beside Kafka's, which recorded traffic does not name; it is said."""
    kafkas = kafkas_among(entry.entity for entry in file.entries)
    return replace(file, entries=tuple(entry for entry in file.entries if entry.entity in kafkas))


def kafkas_among(entities: Iterable[ClientQuotaEntity]) -> set[ClientQuotaEntity]:
    """Those of Kafka's own types; what is left aside is said on standard error."""
    found = set(entities)
    kafkas = {entity for entity in found if entity.entries.keys() <= set(KAFKA.entity_types)}
    others = [entity.to_text() for entity in sorted(found - kafkas, key=ClientQuotaEntity.sort_key)]
    if others:
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        warn(
            f"left aside: {'; '.join(others[:_SHOWN])}{more}: recorded traffic names users, client ids and addresses "
            "alone"
        )
    return kafkas


def _with_type(model: QuotaModel, name: str, table: object, where: str) -> QuotaModel:
    if not isinstance(table, Mapping):
        raise InputError(f"{where} is a table: write [entity_types.{name}]")
    for field in table:
        if field not in _FIELDS:
            raise InputError(f"{where}.{field}: there is no such field (there are {', '.join(_FIELDS)})")
    keys = table.get("keys")
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        known = ", ".join(key.name for key in KAFKA.keys)
        raise InputError(f"{where}.keys: a list of what may be set on a {name} is expected, of {known}")
    if not isinstance(table.get("meter_tag", name), str):
        raise InputError(f"{where}.meter_tag: text is expected")
    options = {field: table[field] for field in ("level", "meter_tag") if field in table}
    try:
        return model.with_entity_type(name, keys=keys, **options)
    except IllegalArgumentError as error:
        raise InputError(f"{where}: {error}") from None
