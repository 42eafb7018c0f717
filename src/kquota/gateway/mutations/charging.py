"""The controller mutation quota at the gateway (KIP-599): what a request that changes topics is charged and answered.

Kafka's controller checks topic by topic whether any tokens are missing, after it validated the topic. A gateway cannot
validate; so it charges first, and gives back what the broker did not do. What follows from that:

- While the client is over its quota, a topic that the broker would refuse for a reason of its own gets
  ``THROTTLING_QUOTA_EXCEEDED``, and its true error when it is asked for again. Topics that do not exist, as far as is
  known, and those that would get no more partitions are neither charged nor refused: the broker answers them.
- How many partitions a topic has is asked of a broker, whose metadata may be some time behind the controller: what was
  changed without the gateway is known then.
- Between request and answer a request that fails may keep another one of the same client from being accepted.
- A new topic that leaves its number of partitions to the brokers is charged what is known of ``num.partitions``. Since
  version 5 the answer gives the number, and the difference is charged or given back. Before, what earlier answers gave
  is all that is known.

Sources: ``ControllerMutationQuotaManager``, ``ReplicationControlManager``, ``ControllerApis``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from kquota.errors import KafkaErrorCode
from kquota.gateway.mutations.frames import (
    MutationRequest,
    MutationResponse,
    TopicAsked,
    TopicKey,
    read_mutation_request,
    read_mutation_response,
)
from kquota.gateway.mutations.partition_counts import PartitionCounts
from kquota.gateway.mutations.splitting import write_answer, write_request_without
from kquota.gateway.quotas.enforcement import Client, Enforcement
from kquota.gateway.relay.actions import Action
from kquota.gateway.relay.throttle_field import write_throttle
from kquota.metering.meters import Throttle
from kquota.metering.requests import RequestQuotas
from kquota.wire.apis import CREATE_PARTITIONS, CREATE_TOPICS
from kquota.wire.messages.topics import UNKNOWN

__all__ = ["Mutated", "mutate"]


class Mutated(NamedTuple):
    """A request that was answered."""

    answer: bytearray
    """A frame with its size; its throttle time is the longer one of the broker's and ours."""
    throttle_ms: int
    """How long the client's channel is to be muted for this quota, from the time of the answer on."""
    refused: int
    """Topics that this quota refused."""


_MAY_BE_DONE: Final = (KafkaErrorCode.NONE, KafkaErrorCode.REQUEST_TIMED_OUT)
"""With any other error a topic was not changed. One that timed out may yet be."""


async def mutate(
    frame: bytes,
    action: Action,
    *,
    forward: Callable[[bytes], Awaitable[bytes]],
    enforcement: Enforcement,
    client: Client,
    counts: PartitionCounts,
    now_ms: Callable[[], int],
    max_elements: int,
) -> Mutated:
    """Answer a CreateTopics, CreatePartitions or DeleteTopics request.

    All topics of the request are charged at one moment, before it is forwarded: parts with a clock each could slip past
    the limit. What is given back, and the wait that is left, are those of the moment of the answer.

    Where nothing is limited (``MutationQuotaManager.is_enabled``) the caller need not come here.

    :param frame: the request without its size.
    :param forward: sends a frame with its size to the broker, and gives the answer without its size. What it raises is
        raised here, and nothing is given back: the broker may have done it.
    :param enforcement: that of the controller. In shadow mode every topic is forwarded, and the answer's throttle time
        is the broker's; what would have been refused is counted, and not charged.
    :param now_ms: milliseconds, by the clock that the quotas are charged by.
    :param max_elements: see :func:`~kquota.gateway.mutations.frames.read_mutation_request`.
    :raises ProtocolError: the request, or the broker's answer, is none. Nothing can be said to the client.
    """
    request = read_mutation_request(frame, max_elements=max_elements)
    costs = await _costs(request, counts, now_ms())
    charged = enforcement.requests.mutate(*client, list(costs.values()), now_ms(), strict=request.is_strict)
    over = {key for key, accepted in zip(costs, charged.accepted, strict=True) if not accepted}
    refused = set[TopicKey]() if enforcement.is_shadow else over
    response, throttle = None, charged.throttle
    if not refused or any(topic.key not in refused for topic in request.topics):
        response = read_mutation_response(request, await forward(write_request_without(request, refused)), refused)
    at_ms = now_ms()
    if response is not None:
        accepted = {key: cost for key, cost in costs.items() if key not in over}
        owed = sum(_done(request, response, accepted).values()) - sum(accepted.values())
        _follow(request, response, counts, at_ms)
        throttle = _charge_difference(enforcement.requests, client, throttle, owed, at_ms, strict=request.is_strict)
    answer = bytearray(write_answer(request, response, refused))
    throttle_ms = enforcement.complete_mutation(client, throttle, at_ms)
    if throttle_ms > 0:
        write_throttle(answer, action, throttle_ms)
    return Mutated(answer, throttle_ms, len(over))


async def _costs(request: MutationRequest, counts: PartitionCounts, now_ms: int) -> dict[TopicKey, float]:
    """What each topic costs, in partitions, by key in the order of the request. A topic that is asked for twice is
    one; those that the broker cannot but refuse are left out.
    """
    if request.api is CREATE_TOPICS:
        now: Mapping[TopicKey, int] = {}
    else:
        now = await counts.get((topic.key for topic in request.topics), now_ms)
    costs: dict[TopicKey, float] = {}
    for topic in request.topics:
        cost = _cost(request, topic, now.get(topic.key), counts.default_partitions)
        if cost is not None and cost > 0:
            costs.setdefault(topic.key, float(cost))
    return costs


def _cost(request: MutationRequest, topic: TopicAsked, now: int | None, default_partitions: int) -> int | None:
    """The partitions that are created or deleted; None where that is not known."""
    if request.api is CREATE_TOPICS:
        return default_partitions if topic.partitions == UNKNOWN else topic.partitions
    if request.api is CREATE_PARTITIONS:
        return None if now is None else topic.partitions - now
    return now


def _done(
    request: MutationRequest, response: MutationResponse, costs: Mapping[TopicKey, float]
) -> dict[TopicKey, float]:
    """The partitions that the broker created or deleted, of the topics that were charged."""
    left_to_broker = {topic.key for topic in request.topics if topic.partitions == UNKNOWN}
    done = dict(costs)
    for result in response.results:
        if result.key not in done:
            continue
        if result.error_code not in _MAY_BE_DONE:
            done[result.key] = 0.0
        elif result.key in left_to_broker and result.partitions > 0:
            done[result.key] = float(result.partitions)
    return done


def _follow(request: MutationRequest, response: MutationResponse, counts: PartitionCounts, now_ms: int) -> None:
    """Keep in mind how many partitions the topics have now."""
    asked = {topic.key: topic.partitions for topic in request.topics}
    for result in response.results:
        if result.key is not None and not result.error_code and not request.validate_only:
            partitions = asked[result.key]
            if partitions == UNKNOWN:
                if result.partitions > 0:
                    counts.default_partitions = result.partitions
                partitions = counts.default_partitions
            counts.put((result.key, result.topic_id), partitions, now_ms)


def _charge_difference(
    requests: RequestQuotas, client: Client, throttle: Throttle | None, owed: float, now_ms: int, *, strict: bool
) -> Throttle | None:
    """Charge what was too little and give back what was too much; the wait that is left then.

    :param throttle: that of the first charge.
    :param owed: partitions, negative where too many were charged.
    """
    if owed < 0:
        requests.refund(*client, -owed, now_ms)
    if throttle is None and owed <= 0:
        return None
    left = requests.mutate(*client, [max(owed, 0.0)], now_ms, strict=False).throttle
    return None if throttle is None and strict else left  # what is accepted strictly never makes its own client wait
