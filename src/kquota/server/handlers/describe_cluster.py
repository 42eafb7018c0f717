"""DescribeCluster: one broker, which is the controller."""

from kquota.errors import KafkaErrorCode
from kquota.server.context import ServerContext
from kquota.wire.messages.describe_cluster import (
    BROKERS,
    CONTROLLERS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

__all__ = ["handle"]


def handle(request: DescribeClusterRequest, context: ServerContext) -> DescribeClusterResponse:
    """Controllers are not to be reached on their own here, as on any broker's listener."""
    if request.endpoint_type == CONTROLLERS:
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return DescribeClusterResponse(0, KafkaErrorCode.MISMATCHED_ENDPOINT_TYPE, message)
    if request.endpoint_type != BROKERS:
        message = f"Unsupported endpoint type {request.endpoint_type}"
        return DescribeClusterResponse(0, KafkaErrorCode.UNSUPPORTED_ENDPOINT_TYPE, message)
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        cluster_id=context.cluster_id,
        controller_id=context.node_id,
        brokers=[DescribeClusterBroker(context.node_id, context.host, context.port)],
    )
