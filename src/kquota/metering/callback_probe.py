"""What a callback must keep to, watched while it is asked: calls are timed, answers compared with those before.

Tags depend on what was asked for alone, and a limit on its tags, until a quota is set or removed, or the
callback says itself that limits changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import log2
from typing import Any, Final, TypeVar

from kquota.metering.callback import (
    CallbackQuotaEntity,
    ClientQuotaCallback,
    ClientQuotaType,
    Cluster,
    HasStaticDefaults,
    KafkaPrincipal,
    MeterUsage,
    UsageAware,
)
from kquota.metering.guard import are_tags, is_limit

__all__ = ["CallTimes", "CallbackProbe", "Fault", "Finding", "Observations"]

REMEMBERED: Final = 200_000
"""How many answers of each kind are remembered, to compare later ones with."""

_BUCKETS_PER_DOUBLING: Final = 8
_LEAST_MS: Final = 1e-4

T = TypeVar("T")


class Fault(Enum):
    """What is wrong, the worst first."""

    RAISED = "raised an exception"
    NO_TAGS = "gave tags that are no mapping of texts to texts"
    NO_LIMIT = "gave a limit that is neither None nor a number above zero"
    TAGS_CHANGED = "gave other tags for what was asked before"
    TAGS_WRITTEN = "wrote into tags that it had given"
    LIMIT_CHANGED = "gave another limit, and nothing said that limits changed"
    RESET_STAYS = "raised the reset flag and never lowered it"
    NO_FLAG = "gave neither true nor false"
    SLOW = "took longer than its budget in more than 1 of 100 calls"


@dataclass(slots=True)
class Finding:
    """A fault, how often it was seen, and the first question that showed it."""

    fault: Fault
    method: str
    count: int
    question: str
    answer: str


class CallTimes:
    """How long the calls of a method took. Percentiles are right to a tenth, whatever the number of calls."""

    __slots__ = ("_buckets", "calls", "max_ms", "over_budget", "slowest")

    def __init__(self) -> None:
        self.calls = 0
        self.over_budget = 0
        self.max_ms = 0.0
        self.slowest: tuple[Any, ...] = ()
        """What was asked in the longest call."""
        self._buckets: dict[int, int] = {}

    def add(self, took_ms: float, budget_ms: float, question: tuple[Any, ...]) -> None:
        """One more call."""
        self.calls += 1
        self.over_budget += took_ms > budget_ms
        if took_ms >= self.max_ms:
            self.max_ms, self.slowest = took_ms, question
        bucket = int(log2(max(took_ms, _LEAST_MS) / _LEAST_MS) * _BUCKETS_PER_DOUBLING)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def percentile_ms(self, share: float) -> float:
        """No more than `share` of the calls took longer."""
        left = self.calls * share
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                return min(self.max_ms, _LEAST_MS * 2 ** ((bucket + 1) / _BUCKETS_PER_DOUBLING))
        return self.max_ms

    @property
    def is_slow(self) -> bool:
        """More than 1 of 100 calls are over the budget, and more than two, which may be the machine's doing."""
        return self.over_budget > max(2, self.calls / 100)


@dataclass(slots=True)
class Observations:
    """What was seen of a callback, on all brokers together."""

    budget_ms: float = 1.0
    times: dict[str, CallTimes] = field(default_factory=dict)
    _found: dict[tuple[Fault, str], Finding] = field(default_factory=dict)

    def note(self, fault: Fault, question: tuple[Any, ...], answer: str) -> None:
        """A fault; the first of a kind is kept as its example."""
        method = str(question[0])
        finding = self._found.get((fault, method))
        if finding is None:
            finding = self._found[fault, method] = Finding(fault, method, 0, _as_call(question), answer)
        finding.count += 1

    def findings(self) -> list[Finding]:
        """The worst first; of the same kind, those seen most often."""
        slow = [
            Finding(
                Fault.SLOW,
                method,
                times.over_budget,
                _as_call(times.slowest),
                f"took {times.max_ms:,.1f} ms, {self.budget_ms:g} ms are the budget",
            )
            for method, times in self.times.items()
            if times.is_slow
        ]
        severity = {fault: number for number, fault in enumerate(Fault)}
        return sorted([*self._found.values(), *slow], key=lambda one: (severity[one.fault], -one.count, one.method))


class CallbackProbe:
    """A callback in front of the one of a broker: it passes all calls on, and notes what it sees."""

    def __init__(self, callback: ClientQuotaCallback, seen: Observations, *, monotonic_ms: Callable[[], float]) -> None:
        self._callback = callback
        self._seen = seen
        self._monotonic_ms = monotonic_ms
        self._tags: dict[tuple[ClientQuotaType, KafkaPrincipal, str], dict[str, str]] = {}
        self._limits: dict[tuple[ClientQuotaType, frozenset[tuple[str, str]]], float | None] = {}
        self._given: tuple[tuple[Any, ...], Any, dict[str, str]] | None = None
        # Types with a reset flag that this probe saw, and that the engine has not asked for since.
        self._pending: set[ClientQuotaType] = set()

    def configure(self, configs: Mapping[str, str]) -> None:
        """Pass on."""
        self._timed(("configure",), lambda: self._callback.configure(configs))

    def use_static_defaults(self, static_defaults: Mapping[str, float]) -> None:
        """Pass on, if the callback has use for them."""
        if isinstance(self._callback, HasStaticDefaults):
            self._callback.use_static_defaults(static_defaults)

    def quota_metric_tags(
        self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str
    ) -> Mapping[str, str]:
        """Pass on; the same answer as before is expected."""
        question = quota_type, principal, client_id
        asked = ("quota_metric_tags", *question)
        tags = self._timed(asked, lambda: self._callback.quota_metric_tags(*question))
        self._look_at_what_was_given()
        if not are_tags(tags):
            self._seen.note(Fault.NO_TAGS, asked, f"answered {tags!r}")
            return tags
        copy = dict(tags)
        self._given = asked, tags, copy
        known = self._tags.get(question)
        if known is not None and known != copy and not self._is_reset(quota_type):
            self._seen.note(Fault.TAGS_CHANGED, asked, f"answered {known!r}, and later {copy!r}")
        _keep(self._tags, question, copy)
        return tags

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """Pass on; the same answer as before is expected, unless quotas changed meanwhile."""
        asked = ("quota_limit", quota_type, dict(metric_tags))
        limit = self._timed(asked, lambda: self._callback.quota_limit(quota_type, metric_tags))
        if not is_limit(limit):
            self._seen.note(Fault.NO_LIMIT, asked, f"answered {limit!r}")
            return limit
        question = quota_type, frozenset(metric_tags.items())
        known = self._limits.get(question, limit)
        if known != limit and not self._is_reset(quota_type):
            self._seen.note(Fault.LIMIT_CHANGED, asked, f"answered {known!r}, and later {limit!r}")
        _keep(self._limits, question, limit)
        return limit

    def update_quota(self, quota_type: ClientQuotaType, quota_entity: CallbackQuotaEntity, new_value: float) -> None:
        """Pass on; any limit may be another now."""
        asked = ("update_quota", quota_type, quota_entity.entity.to_text(), new_value)
        self._forget(quota_type)
        self._timed(asked, lambda: self._callback.update_quota(quota_type, quota_entity, new_value))

    def remove_quota(self, quota_type: ClientQuotaType, quota_entity: CallbackQuotaEntity) -> None:
        """Pass on; any limit may be another now."""
        asked = ("remove_quota", quota_type, quota_entity.entity.to_text())
        self._forget(quota_type)
        self._timed(asked, lambda: self._callback.remove_quota(quota_type, quota_entity))

    def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:
        """Pass on, or answer what the probe found out before."""
        answer = self._reset(quota_type)
        if quota_type in self._pending:
            self._pending.remove(quota_type)
            return True
        return answer

    def update_cluster_metadata(self, cluster: Cluster) -> bool:
        """Pass on; where the callback says so, limits may be others now."""
        asked = ("update_cluster_metadata", cluster)
        answer = self._timed(asked, lambda: self._callback.update_cluster_metadata(cluster))
        if self._is_flag(asked, answer) is not False:
            for quota_type in ClientQuotaType:
                self._forget(quota_type)
        return answer

    def update_usage(self, quota_type: ClientQuotaType, usage: Iterable[MeterUsage]) -> bool:
        """Pass on, if the callback asks for usage; where it says so, limits may be others now."""
        callback = self._callback
        if not isinstance(callback, UsageAware):
            return False
        found = list(usage)
        asked = ("update_usage", quota_type, f"the usage of {len(found)} meters")
        answer = self._timed(asked, lambda: callback.update_usage(quota_type, found))
        if self._is_flag(asked, answer) is True:
            self._forget(quota_type)
        return answer

    def close(self) -> None:
        """Pass on."""
        self._timed(("close",), self._callback.close)

    def ask_again(self) -> None:
        """All that is remembered, now that everything else was asked in between."""
        for quota_type, principal, client_id in list(self._tags):
            try:
                tags = self.quota_metric_tags(quota_type, principal, client_id)
                if are_tags(tags):
                    self.quota_limit(quota_type, tags)
            except Exception:  # noqa: BLE001, S112 - it was noted
                continue

    def _reset(self, quota_type: ClientQuotaType) -> bool:
        asked = ("quota_reset_required", quota_type)

        def ask() -> bool:
            return self._timed(asked, lambda: self._callback.quota_reset_required(quota_type))

        answer = ask()
        if self._is_flag(asked, answer) is True:
            self._forget(quota_type)
            # It may well be raised again at once; twice is no chance.
            if ask() is True and ask() is True:
                self._seen.note(Fault.RESET_STAYS, asked, "answered true three times in a row")
        return answer

    def _is_reset(self, quota_type: ClientQuotaType) -> bool:
        """Whether the flag explains that an answer is another; then whoever asks for the flag next gets true."""
        try:
            if self._reset(quota_type) is True:
                self._pending.add(quota_type)
        except Exception:  # noqa: BLE001 - it was noted
            return False
        return quota_type in self._pending

    def _is_flag(self, asked: tuple[Any, ...], answer: object) -> object:
        if not isinstance(answer, bool):
            self._seen.note(Fault.NO_FLAG, asked, f"answered {answer!r}")
        return answer

    def _forget(self, quota_type: ClientQuotaType) -> None:
        self._tags = {question: tags for question, tags in self._tags.items() if question[0] is not quota_type}
        self._limits = {question: limit for question, limit in self._limits.items() if question[0] is not quota_type}

    def _look_at_what_was_given(self) -> None:
        if self._given is not None:
            asked, tags, copy = self._given
            self._given = None
            if dict(tags) != copy:
                self._seen.note(Fault.TAGS_WRITTEN, asked, f"answered {copy!r}, which now is {dict(tags)!r}")

    def _timed(self, question: tuple[Any, ...], ask: Callable[[], T]) -> T:
        times = self._seen.times.get(question[0])
        if times is None:
            times = self._seen.times[question[0]] = CallTimes()
        began_ms = self._monotonic_ms()
        try:
            return ask()
        except Exception as error:
            self._seen.note(Fault.RAISED, question, f"raised {error!r}")
            raise
        finally:
            times.add(self._monotonic_ms() - began_ms, self._seen.budget_ms, question)


def _keep(answers: dict[Any, Any], question: object, answer: object) -> None:
    if len(answers) < REMEMBERED or question in answers:
        answers[question] = answer


def _as_call(question: tuple[Any, ...]) -> str:
    return f"{question[0]}({', '.join(_shown(part) for part in question[1:])})"


def _shown(part: object) -> str:
    match part:
        case ClientQuotaType():
            return part.name
        case KafkaPrincipal():
            return repr(part.name if part.principal_type == "User" else f"{part.principal_type}:{part.name}")
        case Cluster():
            return f"a cluster with {len(part.partitions)} partitions"
        case _:
            return repr(part)
