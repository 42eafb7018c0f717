"""Clients resolved, wherever the quotas are: here by Kafka's rules, or by a kquota server that knows more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from kquota.cli.options.entity_types import current_model
from kquota.cli.options.targets import Target
from kquota.errors import ApiError
from kquota.quotas import CLIENT_ID, IP, KAFKA, USER, Candidate, ClientQuotaEntity, QuotaResolver, ResolvedQuota

if TYPE_CHECKING:
    from kquota.admin import QuotaAdmin, Value

__all__ = ["Answer", "Client", "resolving"]

_AT_ONCE: Final = 10_000
"""Clients in one call: a cluster that cannot resolve is described for each."""


@dataclass(frozen=True, slots=True)
class Client:
    """Who is asked for, by entity type. An empty name is "none"; a type that is not there was not asked about."""

    names: Mapping[str, str]

    def fields(self) -> dict[str, str]:
        """As printed: a client always has a user and a client id, if empty ones."""
        return {USER: "", CLIENT_ID: "", **self.names}

    def named(self) -> dict[str, str]:
        """What of it has a name."""
        return {kind: name for kind, name in self.names.items() if name}


@dataclass(frozen=True, slots=True)
class Answer:
    """A client with its quotas by key."""

    client: Client
    quotas: Mapping[str, ResolvedQuota]


Resolving = Callable[[Iterable[Client]], Iterator[Answer]]
"""The answers for clients, in order, as they come."""


@contextmanager
def resolving(target: Target, static_defaults: Mapping[str, float]) -> Iterator[Resolving]:
    """What resolves against the quotas of `target`.

    A cluster is asked by its own API, since it may know static defaults of its own; all others are read once. So is a
    cluster where static defaults are given: nobody but the caller knows those.

    :raises KquotaError: the quotas cannot be read.
    """
    cluster = None if static_defaults else target.cluster()
    if cluster is None:
        snapshot = target.read().snapshot()
        resolver = QuotaResolver(snapshot, static_defaults=static_defaults, model=current_model())
        yield partial(_resolved_here, resolver)
    else:
        with cluster:
            yield partial(_resolved_there, cluster.admin)


def _resolved_here(resolver: QuotaResolver, clients: Iterable[Client]) -> Iterator[Answer]:
    for client in clients:
        found = resolver.resolve_client(client.named())
        if isinstance(found, ApiError):
            raise found.to_exception()
        yield Answer(client, found)


def _resolved_there(admin: QuotaAdmin, clients: Iterable[Client]) -> Iterator[Answer]:
    left = iter(clients)
    while batch := list(islice(left, _AT_ONCE)):
        # A client without any name cannot be asked about, and has no limit; one that is given twice is asked once.
        entities = dict.fromkeys(ClientQuotaEntity(client.named()) for client in batch)
        entities.pop(ClientQuotaEntity({}), None)
        found = admin.resolve_client_quotas(entities).config() if entities else {}
        for client in batch:
            yield Answer(client, _by_key(client, found.get(ClientQuotaEntity(client.named()), {})))


def _by_key(client: Client, values: Mapping[str, Value]) -> dict[str, ResolvedQuota]:
    """Also the keys without a limit, as the resolver has them."""
    keys = [key.name for key in KAFKA.keys if client.names.get(IP) or frozenset({IP}) not in key.shapes]
    keys += [key for key in values if key not in keys]
    return {key: _resolved(key, values.get(key)) for key in keys}


def _resolved(key: str, value: Value | None) -> ResolvedQuota:
    if value is None:
        return ResolvedQuota(key, None, None, None, None, ())
    entry = value.entry
    overridden = tuple(Candidate(one.source, one.level, one.value) for one in value.overridden_entries)
    return ResolvedQuota(key, entry.value, entry.source, entry.level, value.meter, overridden)
