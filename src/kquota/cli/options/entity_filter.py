"""Options for which entities: what is asked for, and what is left to test on each that is found."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import click

from kquota.cli.options.taking import option
from kquota.cli.options.targets import parse_name
from kquota.quotas import ClientQuotaEntity, ClientQuotaFilter, ClientQuotaFilterComponent

__all__ = ["EntityFilter"]


def _pairs(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:  # noqa: ARG001
    return tuple(map(partial(parse_name, option=param.opts[0]), texts))


@dataclass(frozen=True)
class EntityFilter:
    """Entities that match a filter, and whose names begin so. Kafka knows no prefixes: the whole type is asked for."""

    names: tuple[tuple[str, str], ...] = option(
        "--name",
        callback=_pairs,
        multiple=True,
        metavar="TYPE=NAME",
        help="Entities of this name; TYPE is user, client-id, ip or one of [entity_types]. Repeatable.",
    )
    defaults: tuple[str, ...] = option(
        "--default", multiple=True, metavar="TYPE", help="Entities that are its default. Repeatable."
    )
    any_types: tuple[str, ...] = option(
        "--any", multiple=True, metavar="TYPE", help="Entities that have the type. Repeatable."
    )
    prefixes: tuple[tuple[str, str], ...] = option(
        "--prefix",
        callback=_pairs,
        multiple=True,
        metavar="TYPE=TEXT",
        help="Entities whose name begins so. Repeatable.",
    )
    strict: bool = option("--strict", is_flag=True, help="Only entities that have no other type than those named.")

    @cached_property
    def asked(self) -> ClientQuotaFilter:
        """What Kafka is asked for."""
        components = (
            *(ClientQuotaFilterComponent.of_entity(*pair) for pair in self.names),
            *(ClientQuotaFilterComponent.of_default_entity(entity_type) for entity_type in self.defaults),
            *(ClientQuotaFilterComponent.of_entity_type(entity_type) for entity_type in self.any_types),
            *(ClientQuotaFilterComponent.of_entity_type(entity_type) for entity_type, _ in self.prefixes),
        )
        return ClientQuotaFilter(components, strict=self.strict)

    def has_prefixes(self, entity: ClientQuotaEntity) -> bool:
        """Whether the names of an entity that was found begin so."""
        names = [(entity.entries.get(entity_type), prefix) for entity_type, prefix in self.prefixes]
        return all(name is not None and name.startswith(prefix) for name, prefix in names)

    def matches(self, entity: ClientQuotaEntity) -> bool:
        """Whether an entity is one of these."""
        return self.asked.matches(entity) and self.has_prefixes(entity)
