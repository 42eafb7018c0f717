"""The quotas of a cluster, as a store: there the brokers decide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kquota.admin import AlterClientQuotasOptions, DescribeClientQuotasOptions, LastDescription, QuotaAdmin
from kquota.errors import ApiError
from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter, QuotaSnapshot
from kquota.stores.port import QuotaStore
from kquota.stores.watch import QuotaWatch, Watches

__all__ = ["ClusterStore"]

_LOOK_EVERY_MS: Final = 1_000
_LOOK_OPTIONS: Final = DescribeClientQuotasOptions(timeout_ms=5_000)
"""A broker that does not answer is given up soon, so that another one is asked."""


class ClusterStore(QuotaStore):
    """A :class:`~kquota.stores.QuotaStore` over :class:`~kquota.admin.QuotaAdmin`.

    Types and keys that kquota does not know are sent, and a dry run is one of the brokers' own.
    """

    def __init__(self, admin: QuotaAdmin) -> None:
        """Take the client, which is closed with the store."""
        self.admin = admin
        self._watches = Watches()

    @property
    def identity(self) -> str | None:
        """The cluster's id.

        :raises KquotaError: the cluster could not be asked.
        """
        return self.admin.cluster_id()

    def describe(self, quota_filter: ClientQuotaFilter) -> Mapping[ClientQuotaEntity, Mapping[str, float]] | ApiError:
        """As :meth:`QuotaStore.describe`.

        :raises KquotaError: the cluster could not be asked.
        """
        return self.admin.describe_client_quotas(quota_filter).found

    def alter(
        self,
        alterations: Iterable[ClientQuotaAlteration],
        *,
        validate_only: bool = False,
        principal: str = "",  # noqa: ARG002 - the brokers know who is connected
    ) -> Mapping[ClientQuotaEntity, ApiError | None]:
        """As :meth:`QuotaStore.alter`; an error that is unknown says that it may have been done.

        :raises IllegalArgumentError: an entity appears twice.
        :raises KquotaError: the cluster could not be asked: nothing was sent.
        """
        options = AlterClientQuotasOptions(validate_only=validate_only)
        results = self.admin.alter_client_quotas(alterations, options).values()
        self._watches.look_now()
        return results

    def watch(self) -> QuotaWatch:
        """As :meth:`Watchable.watch`: the brokers are asked every second.

        Where they answer as before, to the byte, the answer is not even decoded. The broker that is asked may know of
        a change a moment later than the one that answered who made it.
        """
        last = LastDescription()

        def look() -> QuotaSnapshot:
            return self.admin.describe_client_quotas(ClientQuotaFilter.all(), _LOOK_OPTIONS, last=last).entities()

        return self._watches.add(QuotaWatch(look, every_ms=_LOOK_EVERY_MS))

    def close(self) -> None:
        """Close all connections. Safe to call twice."""
        self._watches.close()
        self.admin.close()
