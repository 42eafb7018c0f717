"""Who is muted until when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kquota.metering.delays import DelayQueue

NOW = 1_700_000_000_000


def test_channels_are_released_one_after_the_other() -> None:
    """ThrottledChannelExpirationTest: waits of 10, 30, 30 and 20 ms."""
    queue: DelayQueue[str] = DelayQueue()
    for channel, throttle_ms in (("a", 10), ("b", 30), ("c", 30), ("d", 20)):
        queue.add(channel, throttle_ms, NOW)
    assert (len(queue), queue.next_end_ms) == (4, NOW + 10)
    assert queue.release(NOW + 9) == []
    assert queue.release(NOW + 10) == ["a"]
    assert queue.release(NOW + 20) == ["d"]
    assert len(queue) == 2
    assert queue.release(NOW + 30) == ["b", "c"]
    assert (len(queue), queue.next_end_ms) == (0, None)


def test_one_that_came_later_may_be_released_earlier() -> None:
    queue: DelayQueue[str] = DelayQueue()
    queue.add("first", 1000, NOW)
    queue.add("second", 100, NOW + 500)
    assert queue.release(NOW + 5000) == ["second", "first"]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 200)), max_size=30),
    st.lists(st.integers(0, 300), max_size=10).map(sorted),
)
def test_nobody_is_released_early_late_or_twice(waits: list[tuple[int, int]], times: list[int]) -> None:
    """Equal ends in the order in which they came; channels need not be comparable."""
    queue: DelayQueue[tuple[complex, int]] = DelayQueue()
    for number, (now_ms, throttle_ms) in enumerate(waits):
        queue.add((complex(number), now_ms + throttle_ms), throttle_ms, now_ms)
    waiting = [(complex(number), sum(wait)) for number, wait in enumerate(waits)]
    for now_ms in times:
        due = sorted((one for one in waiting if one[1] <= now_ms), key=lambda one: one[1])
        assert queue.release(now_ms) == due
        waiting = [one for one in waiting if one[1] > now_ms]
        assert len(queue) == len(waiting)
        assert queue.next_end_ms == min((end for _, end in waiting), default=None)
