"""A client for the quotas of any Kafka since 2.6: describe, resolve and alter (KIP-546).

    with QuotaAdmin("localhost:9092") as admin:
        everything = admin.describe_client_quotas(ClientQuotaFilter.all()).entities()

:class:`AsyncQuotaAdmin` is the same for asyncio.
"""

from kquota.admin.client import AsyncQuotaAdmin
from kquota.admin.facade import QuotaAdmin
from kquota.admin.options import AlterClientQuotasOptions, DescribeClientQuotasOptions, ResolveClientQuotasOptions
from kquota.admin.results import (
    AlterClientQuotasResult,
    DescribeClientQuotasResult,
    Entry,
    ResolveClientQuotasResult,
    Value,
)

__all__ = [
    "AlterClientQuotasOptions",
    "AlterClientQuotasResult",
    "AsyncQuotaAdmin",
    "DescribeClientQuotasOptions",
    "DescribeClientQuotasResult",
    "Entry",
    "QuotaAdmin",
    "ResolveClientQuotasOptions",
    "ResolveClientQuotasResult",
    "Value",
]
