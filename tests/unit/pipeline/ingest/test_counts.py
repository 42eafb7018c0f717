"""Counts of workers are added up on the driver."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from kquota.pipeline.ingest.counts import LineCounts, total

numbers = st.integers(0, 9)
line_counts = st.builds(
    LineCounts, lines=numbers, good=numbers, versions=st.dictionaries(st.sampled_from(["0:9", "1:12", "3:9"]), numbers)
)


class Named(Struct):
    names: list[str] = []


@given(st.lists(line_counts, max_size=5))
def test_each_field_is_added_up(parts: list[LineCounts]) -> None:
    """Numbers, and numbers by key; what is added up is not changed."""
    before = [(part.lines, dict(part.versions)) for part in parts]
    found = total(LineCounts, parts)
    assert (found.lines, found.good) == (sum(part.lines for part in parts), sum(part.good for part in parts))
    versions = Counter[str]()
    for part in parts:
        versions.update(part.versions)
    assert Counter(found.versions) == versions
    assert [(part.lines, part.versions) for part in parts] == before
    assert total(LineCounts, []) == LineCounts()


def test_lists_are_joined_in_order() -> None:
    assert total(Named, [Named(["b"]), Named(), Named(["a", "c"])]).names == ["b", "a", "c"]
