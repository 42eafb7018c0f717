"""A callback that cannot stop traffic: what raises, answers nonsense or takes too long is counted, and answered for.

The one thing that cannot be helped is a call that blocks: it is made on the thread that asks, and that thread waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from sys import float_info
from typing import Any, Final, TypeVar

from kquota.errors import CallbackRefusedError
from kquota.metering.callback import (
    CallbackQuotaEntity,
    ClientQuotaCallback,
    ClientQuotaType,
    Cluster,
    HasStaticDefaults,
    KafkaPrincipal,
    MeterUsage,
    UsageAware,
    quota_source,
)
from kquota.quotas import CLIENT_ID, USER

__all__ = ["CallbackFaults", "CallbackGuard", "are_tags", "is_limit"]

KEPT_ANSWERS: Final = 100_000
"""Last answers that are remembered of each kind."""

MOST_WORDS: Final = 200
"""Characters of an answer that are reported."""

Tags = Mapping[str, str]
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class CallbackFaults:
    """What went wrong so far; each is counted in one field."""

    raised: int = 0
    nonsense: int = 0
    """Tags that are no texts, limits that are no numbers above zero."""
    slow: int = 0
    """Calls that took longer than the budget; their answers were taken."""
    not_asked: int = 0
    """Answered from memory while the breaker was open."""


class CallbackGuard:
    """A callback in front of another one, which may be faulty.

    Where there is no answer, the last one to the same question is given; where there is none either, the request is
    counted on its own user and client id, without a limit: an error never throttles anybody. After
    `breaker_after` faults in a row, slow calls included, the callback is left alone for `rest_ms`.
    """

    def __init__(
        self,
        callback: ClientQuotaCallback,
        *,
        monotonic_ms: Callable[[], float],
        budget_ms: float = 1.0,
        breaker_after: int = 100,
        rest_ms: float = 30_000.0,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Take the callback, and a clock that never goes back.

        :param report: called with each fault, in words, and when the breaker opens.
        """
        self.callback = callback
        self.faults = CallbackFaults()
        self._monotonic_ms = monotonic_ms
        self._budget_ms = budget_ms
        self._breaker_after = breaker_after
        self._rest_ms = rest_ms
        self._report = report
        self._in_a_row = 0
        self._resting_until_ms: float | None = None
        self._lets_through = False
        self._tags: dict[tuple[ClientQuotaType, KafkaPrincipal, str], Tags] = {}
        self._limits: dict[tuple[ClientQuotaType, frozenset[tuple[str, str]]], float | None] = {}

    @property
    def is_open(self) -> bool:
        """Whether the breaker keeps questions from the callback."""
        return self._resting_until_ms is not None and self._monotonic_ms() < self._resting_until_ms

    @contextmanager
    def letting_faults_through(self) -> Iterator[None]:
        """While a callback is set up, so that one that cannot be used is not.

        Meanwhile it is asked whatever the breaker says, what it raises is raised, and for an answer that is none
        CallbackRefusedError.
        """
        self._lets_through = True
        try:
            yield
        finally:
            self._lets_through = False

    def configure(self, configs: Mapping[str, str]) -> None:
        """Not guarded: a callback that cannot be configured is not used at all."""
        self.callback.configure(configs)

    def use_static_defaults(self, static_defaults: Mapping[str, float]) -> None:
        """Passed on to a callback that has use for them."""
        callback = self.callback
        if isinstance(callback, HasStaticDefaults):
            self._asked("use_static_defaults", lambda: callback.use_static_defaults(static_defaults))

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> Tags:
        """The callback's, or the last ones, or the request's own user and client id."""
        question = quota_type, principal, client_id
        if not self._may_ask():
            return self._last_tags(question)
        found = self._asked("quota_metric_tags", lambda: _plain(self.callback.quota_metric_tags(*question)), are_tags)
        if found is None:
            return self._last_tags(question)
        tags: Tags = found[0]
        _keep(self._tags, question, tags)
        return tags

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Tags) -> float | None:
        """The callback's, or the last one, or none."""
        question = quota_type, frozenset(metric_tags.items())
        if not self._may_ask():
            return self._limits.get(question)
        found = self._asked("quota_limit", lambda: self.callback.quota_limit(quota_type, metric_tags), is_limit)
        if found is None:
            return self._limits.get(question)
        _keep(self._limits, question, found[0])
        return found[0]

    def quota_source(self, quota_type: ClientQuotaType, metric_tags: Tags) -> str | None:
        """The callback's; None where it has no answer."""
        if not self._may_ask():
            return None
        found = self._asked(
            "quota_source", lambda: quota_source(self.callback, quota_type, metric_tags), _is_text_or_none
        )
        return None if found is None else found[0]

    def update_quota(self, quota_type: ClientQuotaType, quota_entity: CallbackQuotaEntity, new_value: float) -> None:
        """Passed on whatever the breaker says: what the callback misses now it misses for good."""
        self._asked("update_quota", lambda: self.callback.update_quota(quota_type, quota_entity, new_value))

    def remove_quota(self, quota_type: ClientQuotaType, quota_entity: CallbackQuotaEntity) -> None:
        """Told whatever the breaker says."""
        self._asked("remove_quota", lambda: self.callback.remove_quota(quota_type, quota_entity))

    def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:
        """The callback's; no, where it has no answer."""
        if not self._may_ask():
            return False
        found = self._asked("quota_reset_required", lambda: self.callback.quota_reset_required(quota_type))
        return found is not None and found[0] is True

    def update_cluster_metadata(self, cluster: Cluster) -> bool:
        """Told whatever the breaker says; where it has no answer, limits are asked for again."""
        found = self._asked("update_cluster_metadata", lambda: self.callback.update_cluster_metadata(cluster))
        return found is None or found[0] is not False

    def update_usage(self, quota_type: ClientQuotaType, usage: Iterable[MeterUsage]) -> bool:
        """The callback's; no, where it does not ask for usage or has no answer."""
        callback = self.callback
        if not isinstance(callback, UsageAware) or not self._may_ask():
            return False
        found = self._asked("update_usage", lambda: callback.update_usage(quota_type, usage))
        return found is not None and found[0] is True

    def close(self) -> None:
        """Faults here concern nobody any more, and are counted all the same."""
        self._asked("close", self.callback.close)

    def _may_ask(self) -> bool:
        if self._resting_until_ms is None or self._lets_through:
            return True
        if self._monotonic_ms() >= self._resting_until_ms:
            self._resting_until_ms = None
            self._in_a_row = self._breaker_after - 1  # one more fault, and it rests again
            return True
        self.faults.not_asked += 1
        return False

    def _asked(
        self, what: str, ask: Callable[[], T], is_right: Callable[[T], bool] = lambda _: True
    ) -> tuple[T] | None:
        """The answer, in a tuple, since it may be None; None where there is none that is right."""
        began_ms = self._monotonic_ms()
        try:
            answer = ask()
            right = is_right(answer)  # which asks the answer, and that may raise as well
        except Exception as error:
            if self._lets_through:
                raise
            self.faults.raised += 1
            self._fault(f"{what} raised {_words(error)}")
            return None
        if not right:
            if self._lets_through:
                raise CallbackRefusedError(f"{what} answered {_words(answer)}")
            self.faults.nonsense += 1
            self._fault(f"{what} answered {_words(answer)}")
            return None
        took_ms = self._monotonic_ms() - began_ms
        if took_ms > self._budget_ms:
            self.faults.slow += 1
            self._fault(f"{what} took {took_ms:.1f} ms, {self._budget_ms:g} ms are the budget")
        else:
            self._in_a_row = 0
        return (answer,)

    def _fault(self, words: str) -> None:
        self._report(words)
        self._in_a_row += 1
        if self._in_a_row >= self._breaker_after and self._resting_until_ms is None:
            self._resting_until_ms = self._monotonic_ms() + self._rest_ms
            self._report(
                f"{self._in_a_row} faults in a row: the last answers are given for the next {self._rest_ms / 1000:g} s"
            )

    def _last_tags(self, question: tuple[ClientQuotaType, KafkaPrincipal, str]) -> Tags:
        known = self._tags.get(question)
        return {USER: question[1].name, CLIENT_ID: question[2]} if known is None else known


def _keep(answers: dict[K, V], question: K, answer: V) -> None:
    if len(answers) >= KEPT_ANSWERS and question not in answers:
        answers.clear()
    answers[question] = answer


def _plain(answer: Any) -> Any:
    """A copy that the callback cannot change any more; what are no tags, as it is."""
    return dict(answer) if isinstance(answer, Mapping) else answer


def are_tags(answer: object) -> bool:
    """Whether it is a mapping of texts to texts."""
    return isinstance(answer, Mapping) and all(
        isinstance(tag, str) and isinstance(name, str) for tag, name in answer.items()
    )


def is_limit(answer: object) -> bool:
    """Whether it is None or a number above zero that a double holds."""
    if answer is None:
        return True
    if isinstance(answer, float):
        return answer > 0  # which NaN is not
    return isinstance(answer, int) and not isinstance(answer, bool) and 0 < answer <= float_info.max


def _is_text_or_none(answer: object) -> bool:
    return answer is None or isinstance(answer, str)


def _words(value: object) -> str:
    """What a callback gave, in not too many words, even if it cannot say it."""
    try:
        words = repr(value)
    except Exception as error:  # noqa: BLE001 - this, too, is the callback's code
        words = f"a {type(value).__name__} whose repr raised {type(error).__name__}"
    return words if len(words) <= MOST_WORDS else f"{words[:MOST_WORDS]}..."
