"""A client for the quotas of Kafka since 2.6 (KIP-546), and for changes of topics under a quota (KIP-599).

    with QuotaAdmin("localhost:9092") as admin:
        everything = admin.describe_client_quotas(ClientQuotaFilter.all()).entities()
        admin.topics.create_topics([NewTopic("orders", num_partitions=12)]).all()

:class:`AsyncQuotaAdmin` is the same for asyncio.
"""

from kquota.admin.client import AsyncQuotaAdmin, LastDescription
from kquota.admin.facade import QuotaAdmin, TopicAdmin
from kquota.admin.options import (
    AlterClientQuotasOptions,
    CreatePartitionsOptions,
    CreateTopicsOptions,
    DeleteTopicsOptions,
    DescribeClientQuotasOptions,
    ResolveClientQuotasOptions,
)
from kquota.admin.results import (
    AlterClientQuotasResult,
    CreatedTopic,
    CreatePartitionsResult,
    CreateTopicsResult,
    DeleteTopicsResult,
    DescribeClientQuotasResult,
    Entry,
    ResolveClientQuotasResult,
    Value,
)
from kquota.admin.topics import AsyncTopicAdmin, NewPartitions, NewTopic

__all__ = [
    "AlterClientQuotasOptions",
    "AlterClientQuotasResult",
    "AsyncQuotaAdmin",
    "AsyncTopicAdmin",
    "CreatePartitionsOptions",
    "CreatePartitionsResult",
    "CreateTopicsOptions",
    "CreateTopicsResult",
    "CreatedTopic",
    "DeleteTopicsOptions",
    "DeleteTopicsResult",
    "DescribeClientQuotasOptions",
    "DescribeClientQuotasResult",
    "Entry",
    "LastDescription",
    "NewPartitions",
    "NewTopic",
    "QuotaAdmin",
    "ResolveClientQuotasOptions",
    "ResolveClientQuotasResult",
    "TopicAdmin",
    "Value",
]
