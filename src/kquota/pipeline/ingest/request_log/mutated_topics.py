"""What a logged CreateTopics, CreatePartitions or DeleteTopics request did to each of its topics."""

from __future__ import annotations

from typing import Literal, NamedTuple

from kquota.pipeline.ingest.request_log.line import (
    CreatePartitionsLine,
    CreatePartitionsResponse,
    CreateTopicsLine,
    CreateTopicsResponse,
    DeleteTopicsLine,
    DeleteTopicsResponse,
    LogLine,
)

__all__ = ["MutatedTopic", "MutationLine", "logged_throttle_ms", "mutated_topics"]

MutationLine = CreateTopicsLine | CreatePartitionsLine | DeleteTopicsLine


class MutatedTopic(NamedTuple):
    """One topic of a request. `partitions` is how many it has afterwards, None where the line does not say."""

    topic: str | None
    operation: Literal["create", "grow", "delete", "none"]
    """``none``: refused. A topic that fails costs nothing: permits are taken after all other checks."""
    partitions: int | None
    validate_only: bool = False
    """Charged all the same in KRaft mode, but the topic stays as it was."""


def mutated_topics(request: LogLine, *, default_partitions: int) -> list[MutatedTopic]:
    """The topics in the order of the answer; none where there is no answer (ReplicationControlManager).

    :param default_partitions: the broker's ``num.partitions``, for topics created without a count.
    """
    match request:
        case CreateTopicsLine(response=CreateTopicsResponse() as response):
            asked = {topic.name: topic for topic in request.request.topics}
            created = []
            for result in response.topics:
                partitions = result.numPartitions  # in answers since version 5
                topic = asked.get(result.name or "")
                if partitions < 0 and topic is not None:
                    partitions = len(topic.assignments) or topic.numPartitions
                created.append(
                    MutatedTopic(
                        result.name,
                        "none" if result.errorCode else "create",
                        partitions if partitions >= 0 else default_partitions,
                        request.request.validateOnly,
                    )
                )
            return created
        case CreatePartitionsLine(response=CreatePartitionsResponse() as response):
            counts = {topic.name: topic.count for topic in request.request.topics}
            return [
                MutatedTopic(
                    result.name,
                    "none" if result.errorCode else "grow",
                    counts.get(result.name or ""),
                    request.request.validateOnly,
                )
                for result in response.results
            ]
        case DeleteTopicsLine(response=DeleteTopicsResponse() as response):
            return [
                MutatedTopic(result.name, "none" if result.errorCode else "delete", None)
                for result in response.responses
            ]
        case _:
            return []


def logged_throttle_ms(request: MutationLine) -> int:
    """The throttle time that the client was sent, in ms. The line's own is 0 where the controller computed it."""
    if isinstance(request.response, str | None):
        return request.throttleTimeMs
    return max(request.throttleTimeMs, request.response.throttleTimeMs)
