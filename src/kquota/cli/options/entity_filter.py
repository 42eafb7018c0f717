"""Options for which entities: what is asked for, and what is left to test on each that is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, TypeVar

import click

from kquota.cli.options.entity_types import current_model
from kquota.cli.options.targets import parse_name
from kquota.errors import InputError
from kquota.quotas import ClientQuotaEntity, ClientQuotaFilter, ClientQuotaFilterComponent

__all__ = ["EntityFilter", "filter_options"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class EntityFilter:
    """Entities that match a filter, and whose names begin so. Kafka knows no prefixes: the whole type is asked for."""

    asked: ClientQuotaFilter
    prefixes: tuple[tuple[str, str], ...]

    @classmethod
    def of(
        cls,
        names: tuple[str, ...],
        defaults: tuple[str, ...],
        any_types: tuple[str, ...],
        prefixes: tuple[str, ...],
        *,
        strict: bool,
    ) -> EntityFilter:
        """What the options say.

        :raises InputError: one is not ``type=name``.
        """
        named = tuple(parse_name(text, "--prefix") for text in prefixes)
        components = (
            *(ClientQuotaFilterComponent.of_entity(*parse_name(text, "--name")) for text in names),
            *(ClientQuotaFilterComponent.of_default_entity(entity_type) for entity_type in defaults),
            *(ClientQuotaFilterComponent.of_entity_type(entity_type) for entity_type in any_types),
            *(ClientQuotaFilterComponent.of_entity_type(entity_type) for entity_type, _ in named),
        )
        return cls(ClientQuotaFilter(components, strict=strict), named)

    def check(self) -> None:
        """Refuse what Kafka would, where no broker is asked.

        :raises InputError: it cannot be asked for.
        """
        refused = self.asked.refusal(current_model())
        if refused is not None:
            raise InputError(str(refused.message))

    def has_prefixes(self, entity: ClientQuotaEntity) -> bool:
        """Whether the names of an entity that was found begin so."""
        names = [(entity.entries.get(entity_type), prefix) for entity_type, prefix in self.prefixes]
        return all(name is not None and name.startswith(prefix) for name, prefix in names)

    def matches(self, entity: ClientQuotaEntity) -> bool:
        """Whether an entity is one of these."""
        return self.asked.matches(entity) and self.has_prefixes(entity)


def filter_options(command: F) -> F:
    """``--name``, ``--default``, ``--any``, ``--prefix`` and ``--strict``.

    The command gets them as one :class:`EntityFilter`, called `entity_filter`.
    """

    @wraps(command)
    def with_filter(**options: Any) -> Any:
        return command(entity_filter=EntityFilter.of(**{name: options.pop(name) for name in _OPTIONS}), **options)

    decorated: Any = with_filter
    for option in (
        click.option("--strict", is_flag=True, help="Only entities that have no other type than those named."),
        click.option(
            "--prefix",
            "prefixes",
            multiple=True,
            metavar="TYPE=TEXT",
            help="Entities whose name begins so. Repeatable.",
        ),
        click.option(
            "--any", "any_types", multiple=True, metavar="TYPE", help="Entities that have the type. Repeatable."
        ),
        click.option(
            "--default", "defaults", multiple=True, metavar="TYPE", help="Entities that are its default. Repeatable."
        ),
        click.option(
            "--name",
            "names",
            multiple=True,
            metavar="TYPE=NAME",
            help="Entities of this name; TYPE is user, client-id, ip or one of [entity_types]. Repeatable.",
        ),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return] # what click makes of a function is one


_OPTIONS: Final = ("names", "defaults", "any_types", "prefixes", "strict")
