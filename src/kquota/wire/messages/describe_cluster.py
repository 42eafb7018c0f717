"""DescribeCluster (60)."""

from typing import Annotated

from msgspec import Struct

from kquota.wire.schema import Boolean, Int8, Int16, Int32, String, Versions

__all__ = ["DescribeClusterBroker", "DescribeClusterRequest", "DescribeClusterResponse"]

BROKERS = 1
CONTROLLERS = 2
UNKNOWN_OPERATIONS = -(2**31)


class DescribeClusterRequest(Struct, frozen=True, gc=False):
    """`endpoint_type` 1 asks for brokers, 2 for controllers."""

    include_cluster_authorized_operations: Boolean = False
    endpoint_type: Annotated[Int8, Versions(since=1)] = BROKERS
    include_fenced_brokers: Annotated[Boolean, Versions(since=2)] = False


class DescribeClusterBroker(Struct, frozen=True, gc=False):
    """Where a broker can be reached."""

    broker_id: Int32
    host: String
    port: Int32
    rack: String | None = None
    is_fenced: Annotated[Boolean, Versions(since=2)] = False


class DescribeClusterResponse(Struct, frozen=True, gc=False):
    """The cluster's id, its controller and its brokers."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    endpoint_type: Annotated[Int8, Versions(since=1)] = BROKERS
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = UNKNOWN_OPERATIONS
