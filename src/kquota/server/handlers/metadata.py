"""Metadata: one broker, which is the controller, and no topics."""

from kquota.errors import KafkaErrorCode
from kquota.server.context import ServerContext
from kquota.server.messages import sendable_name
from kquota.wire.messages.metadata import MetadataBroker, MetadataRequest, MetadataResponse, MetadataTopic

__all__ = ["handle"]


def handle(request: MetadataRequest, context: ServerContext) -> MetadataResponse:
    """Topics that are asked for by name or id are unknown."""
    unknown = [
        MetadataTopic(
            error_code=KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic.name is not None
            else KafkaErrorCode.UNKNOWN_TOPIC_ID,
            name=sendable_name(topic.name),
            topic_id=topic.topic_id,
        )
        for topic in request.topics or ()
    ]
    return MetadataResponse(
        throttle_time_ms=0,
        brokers=[MetadataBroker(context.node_id, context.host, context.port)],
        cluster_id=context.cluster_id,
        controller_id=context.node_id,
        topics=unknown,
    )
