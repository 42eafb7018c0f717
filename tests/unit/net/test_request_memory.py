"""Room for large requests."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from kquota.net.request_memory import RequestMemory


def test_first_come_first_served() -> None:
    """A small request does not overtake a large one that waits; what was given back is for the next one."""
    memory, granted = RequestMemory(100), []
    assert memory.reserve("a", 60, lambda: granted.append("a"))
    assert memory.reserve("a", 60, lambda: granted.append("a")), "the same again"
    assert not memory.reserve("b", 50, lambda: granted.append("b"))
    assert not memory.reserve("c", 10, lambda: granted.append("c"))
    assert not memory.reserve("b", 50, lambda: granted.append("b"))
    memory.release("a")
    assert granted == ["b", "c"]
    assert memory.reserve("b", 50, lambda: None)


def test_the_oldest_request_never_waits() -> None:
    """Otherwise requests that have all arrived in part would wait for each other; it may be larger than all room."""
    memory, granted = RequestMemory(100), []
    assert memory.reserve("a", 50, lambda: granted.append("a"))
    assert memory.reserve("b", 50, lambda: granted.append("b"))
    assert not memory.reserve("b", 60, lambda: granted.append("b"))
    assert memory.reserve("a", 500, lambda: granted.append("a"))
    memory.release("a")
    assert granted == ["b"]
    assert memory.reserve("b", 300, lambda: granted.append("b"))
    assert not memory.reserve("c", 1, lambda: granted.append("c"))
    memory.release("b")
    assert granted == ["b", "c"]


def test_who_leaves_the_queue_is_forgotten() -> None:
    memory, granted = RequestMemory(100), []
    assert memory.reserve("a", 100, lambda: None)
    assert not memory.reserve("b", 100, lambda: granted.append("b"))
    memory.release("b")
    memory.release("a")
    assert granted == []
    assert memory.reserve("c", 100, lambda: None)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 150), st.booleans()), max_size=40))
def test_never_more_than_there_is(steps: list[tuple[int, int, bool]]) -> None:
    """But for the oldest; and everybody who waits is served once those before have left."""
    memory = RequestMemory(100)
    holding: dict[int, int] = {}
    waiting: dict[int, int] = {}

    def grant(owner: int) -> None:
        holding[owner] = waiting.pop(owner)

    for owner, size, leaves in steps:
        if leaves:
            holding.pop(owner, None)
            waiting.pop(owner, None)
            memory.release(owner)
        elif owner not in waiting and size > holding.get(owner, 0):
            if memory.reserve(owner, size, partial(grant, owner)):
                holding[owner] = size
            else:
                waiting[owner] = size
        oldest = next(iter(holding), None)
        assert sum(size for one, size in holding.items() if one != oldest) <= 100
        assert not waiting or holding
        assert oldest not in waiting
    while holding:
        owner = next(iter(holding))
        del holding[owner]
        memory.release(owner)
    assert not waiting
