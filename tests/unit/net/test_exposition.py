"""The text format, read back by the parser of Prometheus' own client."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kquota.net.exposition import Exposition, counter, histogram

VALUES = st.floats() | st.integers(-(10**20), 10**20).map(float)
LABELS = st.dictionaries(st.sampled_from(["a", "b_c", "le"]), st.text(max_size=20), max_size=3)


def read(page: Exposition) -> list[tuple[str, str, str, Mapping[str, str], float]]:
    text = b"".join(page.parts()).decode()
    return [
        (family.type, family.documentation, sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


@given(labels=LABELS, value=VALUES, documentation=st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1))
def test_any_labels_and_values_come_back(labels: dict[str, str], value: float, documentation: str) -> None:
    page = Exposition()
    page.gauge("one", documentation).add(value, labels)
    [(kind, found_documentation, name, found_labels, found)] = read(page)
    assert (kind, found_documentation, name, found_labels) == ("gauge", documentation, "one", labels)
    assert found == value or (math.isnan(found) and math.isnan(value))


def test_a_family_is_written_once_however_often_it_is_asked_for() -> None:
    page = Exposition()
    page.family(counter("a_total", "A", "x")).add(1, {"x": "1"})
    page.gauge("b", "B").add(2)
    page.family(counter("a_total", "A", "x")).add(3, {"x": "2"})
    page.gauge("without_series", "C")
    assert [(kind, name, value) for kind, _, name, _, value in read(page)] == [
        ("counter", "a_total", 1),
        ("counter", "a_total", 3),
        ("gauge", "b", 2),
    ]
    assert b"without_series" not in b"".join(page.parts())


def test_a_histogram_is_one_to_the_parser() -> None:
    page = Exposition()
    family = page.family(histogram("h_seconds", "H"))
    family.add(1, {"le": "0.5"}, suffix="_bucket")
    family.add(2, {"le": "+Inf"}, suffix="_bucket")
    family.add(2, suffix="_count")
    family.add(0.75, suffix="_sum")
    assert {kind for kind, *_ in read(page)} == {"histogram"}
