"""A cluster with topics and one mutation quota, behind a transport's methods: no sockets, and a clock by hand.

It meters with kquota's own engine, which is held against Kafka's classes elsewhere.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kquota.admin.carried import Repeated
from kquota.errors import ConnectionFailedError, KafkaErrorCode, KquotaError, RequestTimeoutError
from kquota.metering.callback import DefaultQuotaCallback
from kquota.metering.managers import MutationQuotaManager
from kquota.metering.statistics import Windows
from kquota.quotas import ClientQuotaEntity
from kquota.wire.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, TOPIC_APIS, Api
from kquota.wire.messages.topics import (
    CreatableTopicResult,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsResponse,
)
from tests.kit.manual_clock import ManualClock
from tests.kit.mutations import charge_mutation

STRICT_SINCE: Final = {CREATE_TOPICS.key: 6, DELETE_TOPICS.key: 5, CREATE_PARTITIONS.key: 3}

LOST_ANSWER: Final = "done, and the answer is lost"
NOT_CONTROLLER: Final = "another one is the controller now"
SILENT: Final = "answers, and leaves out the first topic"
Fault = KquotaError | str | None


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that reached the cluster."""

    at_ms: int
    api: Api
    version: int
    topics: tuple[str, ...]
    validate_only: bool = False


class TopicCluster:
    """Speaks the newest versions, unless told otherwise. Each request takes `faults` by turns: None is none."""

    def __init__(self, clock: ManualClock, *, rate: float | None = None, samples: int = 1, latency_ms: int = 0) -> None:
        self.clock = clock
        self.topics: dict[str, int] = {}
        self.sent: list[Sent] = []
        self.searches: list[int] = []
        self.faults: deque[Fault] = deque()
        self._latency_ms = latency_ms
        self.held_back_ms = 0
        """How long requests came before the time that had been told."""
        self._told_until_ms = 0
        self._quota = MutationQuotaManager(Windows(samples, 1000), DefaultQuotaCallback())
        if rate is not None:
            self._quota.update_quota(ClientQuotaEntity({"user": "alice"}), rate)

    async def sleep(self, seconds: float) -> None:
        self.clock.advance(math.ceil(seconds * 1000))

    async def versions(self, timeout_ms: float) -> Mapping[int, tuple[int, int]]:
        return {api.key: (api.min_version, api.max_version) for api in TOPIC_APIS}

    async def find_controller(self, timeout_ms: float) -> None:
        self.searches.append(self.clock.now_ms())

    async def close(self) -> None:
        """Nothing is open."""

    async def send(
        self,
        api: Api,
        body: Any,
        *,
        timeout_ms: float,
        to_controller: bool = False,
        max_version: int | None = None,
        repeated: Repeated | None = None,
    ) -> Any:
        version = api.max_version if max_version is None else max_version
        # As it arrives: what the version cannot carry is not there.
        codec = api.request_codec(version)
        body, _ = codec.read(codec.write(body), 0)
        wait_ms = max(0, self._told_until_ms - self.clock.now_ms())
        if wait_ms > timeout_ms:
            raise ConnectionFailedError("the broker throttles this client for longer than there is time")
        self.held_back_ms += wait_ms
        self.clock.advance(wait_ms)
        fault = self.faults.popleft() if self.faults else None
        if isinstance(fault, KquotaError):
            raise fault
        asked = _topics(api, version, body)
        validate_only = getattr(body, "validate_only", False)
        self.sent.append(Sent(self.clock.now_ms(), api, version, tuple(asked), validate_only))
        if fault == NOT_CONTROLLER:
            return _answer(api, version, dict.fromkeys(asked, int(KafkaErrorCode.NOT_CONTROLLER)), 0)
        told_ms = 0
        codes: dict[str, int] = {}
        for name, count in asked.items():
            codes[name], throttle_ms = self._change(api, version, name, count, validate_only=validate_only)
            told_ms = throttle_ms or told_ms
        self.clock.advance(self._latency_ms)
        if api.client_throttles(version):
            self._told_until_ms = self.clock.now_ms() + told_ms
        if fault == LOST_ANSWER:
            self.clock.advance(math.ceil(timeout_ms))
            raise RequestTimeoutError("no answer")
        if fault == SILENT:
            del codes[next(iter(codes))]
        return _answer(api, version, codes, told_ms)

    def _change(self, api: Api, version: int, name: str, count: int, *, validate_only: bool) -> tuple[int, int]:
        """Kafka's order: what is wrong with a topic is found before its permits are taken."""
        now = self.topics.get(name)
        if api is CREATE_TOPICS and now is not None:
            return KafkaErrorCode.TOPIC_ALREADY_EXISTS, 0
        if api is not CREATE_TOPICS and now is None:
            return KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0
        after = 0 if api is DELETE_TOPICS else count
        cost = abs(after - (now or 0))
        strict = version >= STRICT_SINCE[api.key]
        throttle, accepted = charge_mutation(self._quota, "alice", "", cost, self.clock.now_ms(), strict=strict)
        if not accepted:
            assert throttle is not None
            return KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED, throttle.throttle_ms
        if not validate_only:
            self.topics[name] = after
            if not after:
                del self.topics[name]
        return 0, throttle.throttle_ms if throttle is not None else 0


def _topics(api: Api, version: int, body: Any) -> dict[str, int]:
    """What is asked of each topic: the partitions that it is to have."""
    if api is DELETE_TOPICS:
        names: Sequence[str] = [one.name for one in body.topics] if version >= 6 else body.topic_names
        return dict.fromkeys(names, 0)
    return {one.name: one.num_partitions if api is CREATE_TOPICS else one.count for one in body.topics}


def _answer(api: Api, version: int, codes: Mapping[str, int], told_ms: int) -> Any:
    response: Any
    if api is CREATE_TOPICS:
        results = [CreatableTopicResult(name, bytes(15) + b"\1", code, None, 3, 1, []) for name, code in codes.items()]
        response = CreateTopicsResponse(told_ms, results)
    elif api is DELETE_TOPICS:
        response = DeleteTopicsResponse(told_ms, [DeletableTopicResult(name, error_code=codes[name]) for name in codes])
    else:
        response = CreatePartitionsResponse(
            told_ms, [CreatePartitionsTopicResult(name, code, None) for name, code in codes.items()]
        )
    codec = api.response_codec(version)
    return codec.read(codec.write(response), 0)[0]
