"""What the handlers of the server know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kquota.quotas import QuotaIndex, QuotaResolver
from kquota.server.encoded import EncodedEntries
from kquota.server.writer import Writer
from kquota.stores.port import Servable

__all__ = ["ServerContext"]


@dataclass(slots=True)
class ServerContext:
    """One server: it is its own cluster, of one broker that is the controller, too.

    The gateway, whose brokers say what the cluster is, has no use for the fields about that.
    """

    store: Servable
    cluster_id: str = ""
    host: str = ""
    """The address that clients get to connect to."""
    port: int = 0
    node_id: int = 1
    static_defaults: Mapping[str, float] = field(default_factory=dict)
    max_answer_bytes: int = 4 * 1024 * 1024
    """The most that an answer about many clients may be."""
    _resolver: tuple[QuotaIndex, QuotaResolver] | None = field(default=None, init=False, repr=False)
    _entries: dict[int, EncodedEntries] = field(default_factory=dict, init=False, repr=False)
    writer: Writer = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.writer = Writer(self.store)

    def close(self) -> None:
        """End what runs beside the requests. The store stays the caller's to close."""
        self.writer.close()

    def encoded_entries(self, version: int) -> EncodedEntries:
        """For answers to DescribeClientQuotas in this version."""
        entries = self._entries.get(version)
        if entries is None:
            entries = self._entries[version] = EncodedEntries(version)
        return entries

    def entities_to_read(self) -> int:
        """How many entities :meth:`resolver` has to look at: none, or all where something changed."""
        index = self.store.index()
        return 0 if self._resolver is not None and self._resolver[0] is index else len(index.snapshot)

    def resolver(self) -> QuotaResolver:
        """For the quotas as they are now; made anew only when they changed."""
        index, kept = self.store.index(), self._resolver
        if kept is None or kept[0] is not index:
            resolver = QuotaResolver(index.snapshot, static_defaults=self.static_defaults, model=self.store.model)
            # Another thread may keep an older one a moment later: what is given is what was made here.
            kept = self._resolver = index, resolver
        return kept[1]
