"""What to send, when, and what came of each topic: decided from answers and times alone."""

from __future__ import annotations

import pytest

from kquota.admin.mutation import RETRY_BACKOFF_MS, FindController, Mutation, Send, Wait
from kquota.errors import ApiError, KafkaErrorCode, ThrottlingQuotaExceededError

QUOTA = ApiError(KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED)
EXISTS = ApiError(KafkaErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'b' already exists.")
MOVED = ApiError(KafkaErrorCode.NOT_CONTROLLER)


def refused(left_ms: int) -> ApiError:
    text = "The throttling quota has been exceeded."
    return ApiError(KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED, text, throttle_time_ms=left_ms)


def mutation(*topics: str, timeout_ms: float = 10_000, retry: bool = True) -> Mutation:
    return Mutation(topics, now_ms=1_000, timeout_ms=timeout_ms, retry_on_quota_violation=retry)


def test_nothing_to_do() -> None:
    """Nothing is sent for no topics."""
    empty = mutation()
    assert empty.step(1_000) is None
    assert empty.results == {}


def test_only_what_the_quota_refused_is_sent_again_after_the_time_told() -> None:
    """Other errors stand, and so does what was done; results keep the order asked for."""
    call = mutation("a", "b", "c", "d")
    assert call.step(1_000) == Send(("a", "b", "c", "d"), 10_000)
    call.answered(1_200, 1_500, {"d": QUOTA, "c": None, "b": EXISTS, "a": QUOTA, "stranger": None})
    assert call.step(1_200) == Wait(1_500)
    assert call.step(2_699) == Wait(1)
    assert call.step(2_700) == Send(("a", "d"), 8_300)
    call.answered(2_800, 400, {"a": None, "d": QUOTA})
    assert call.step(3_200) == Send(("d",), 7_800)
    call.answered(3_300, 0, {"d": None})
    assert call.step(3_300) is None
    assert list(call.results.items()) == [("a", None), ("b", EXISTS), ("c", None), ("d", None)]


def test_without_retries_it_fails_at_once() -> None:
    """With the time that the broker told."""
    call = mutation("a", "b", retry=False)
    call.answered(1_100, 2_000, {"a": None, "b": QUOTA})
    assert call.step(1_100) is None
    assert call.results == {"a": None, "b": refused(2_000)}
    error = refused(2_000).to_exception()
    assert isinstance(error, ThrottlingQuotaExceededError)
    assert (error.throttle_time_ms, error.error.retriable, error.exit_code) == (2_000, True, 1)
    assert "Try again in 2000 ms" in str(error)


@pytest.mark.parametrize(("told_ms", "left_ms"), [(30_000, 20_100), (9_901, 1), (9_900, 0)])
def test_at_the_timeout_what_is_left_of_the_time_told_is_said(told_ms: int, left_ms: int) -> None:
    """Java's rule: the last time told, less what has passed since. Nothing is sent at the end of the time."""
    call = mutation("a")
    call.answered(1_100, told_ms, {"a": QUOTA})
    assert call.step(1_100) == Wait(9_900)
    assert call.step(11_000) is None
    assert call.results == {"a": refused(left_ms)}


def test_a_late_look_finds_nothing_left_of_the_time_told() -> None:
    """And never less than nothing."""
    call = mutation("a")
    call.answered(1_100, 500, {"a": QUOTA})
    assert call.step(60_000) is None
    assert call.results == {"a": refused(0)}


def test_without_a_time_told_it_waits_a_little() -> None:
    """A broker that says "not now" and nothing else is not flooded; a negative time is none."""
    for told_ms in (0, -5):
        call = mutation("a")
        call.answered(1_100, told_ms, {"a": QUOTA})
        assert call.step(1_100) == Wait(RETRY_BACKOFF_MS)


def test_another_controller_is_looked_for_first() -> None:
    """Once for each time that it moved, and it is no matter of the quota."""
    call = mutation("a", "b", retry=False)
    call.answered(1_100, 0, {"a": MOVED, "b": None})
    assert call.step(1_100) == Wait(RETRY_BACKOFF_MS)
    assert call.step(1_200) == FindController(9_800)
    assert call.step(1_250) == Send(("a",), 9_750)
    call.answered(1_300, 0, {"a": MOVED})
    assert call.step(1_400) == FindController(9_600)
    assert call.step(11_000) is None
    assert call.results == {"a": MOVED, "b": None}


def test_a_topic_without_an_answer_is_not_taken_for_done() -> None:
    """The answer has to name it."""
    call = mutation("a", "b")
    call.answered(1_100, 0, {"b": None})
    assert call.step(1_100) is None
    error = call.results["a"]
    assert error is not None
    assert error.code == KafkaErrorCode.UNKNOWN_SERVER_ERROR


def test_what_could_not_be_sent_again_is_tried_until_the_time_is_over() -> None:
    """Then the quota's refusal is the last word: that it was not done is sure."""
    call = mutation("a", timeout_ms=1_000)
    call.answered(1_100, 700, {"a": QUOTA})
    assert call.step(1_800) == Send(("a",), 200)
    call.not_sent(1_850)
    assert call.step(1_850) == Wait(RETRY_BACKOFF_MS)
    assert call.step(1_950) == Send(("a",), 50)
    call.not_sent(2_000)
    assert call.step(2_000) is None
    assert call.results == {"a": refused(0)}


def test_giving_up_leaves_what_was_done() -> None:
    """Only what was under way has the error."""
    call = mutation("a", "b", "c")
    assert not call.was_answered
    call.answered(1_100, 500, {"a": None, "b": QUOTA, "c": QUOTA})
    assert call.was_answered
    unknown = ApiError(KafkaErrorCode.REQUEST_TIMED_OUT)
    call.gave_up(unknown)
    assert call.step(1_600) is None
    assert call.results == {"a": None, "b": unknown, "c": unknown}


def test_there_is_one_attempt_however_short_the_time() -> None:
    """Whoever carries it says that there was no time."""
    call = mutation("a", timeout_ms=0)
    assert call.step(1_005) == Send(("a",), 0)
