"""Objectives: how much of an impact is allowed, as text."""

import pytest

from kquota.errors import InputError
from kquota.policy import Objective


@pytest.mark.parametrize(
    "text, name, most",
    [
        ("throttled_share<=1%", "throttled_share", 0.01),
        ("throttled_share<=0.01", "throttled_share", 0.01),
        (" throttled_share <= 100 % ", "throttled_share", 1.0),
        ("throttled_share<=1", "throttled_share", 1.0),
        ("max_delay_ms<=500", "max_delay_ms", 500.0),
        ("throttled_requests<=0", "throttled_requests", 0.0),
    ],
)
def test_objectives(text: str, name: str, most: float) -> None:
    assert Objective.parse(text) == Objective(name, most)


@pytest.mark.parametrize(
    "text, reason",
    [
        ("throttled_share", "is no objective"),
        ("throttled_share<1", "is no objective"),
        ("throttled_share<=-1", "is no objective"),
        ("throttled_share<=nan", "is no objective"),
        ("delay<=1", "is no objective"),
        ("max_delay_ms<=1%", "is no value of max_delay_ms"),
        ("max_delay_ms<=1.2.3", "is no value of max_delay_ms"),
        ("throttled_share<=5", "a share is at most 1"),
        ("throttled_share<=101%", "a share is at most 1"),
    ],
)
def test_what_is_none_is_refused(text: str, reason: str) -> None:
    """A share of 5 was meant as 5 %, and would allow everything."""
    with pytest.raises(InputError, match=reason):
        Objective.parse(text)


@pytest.mark.parametrize("value, is_met", [(0.0, True), (0.01, True), (0.02, False), (None, False)])
def test_what_is_not_known_meets_no_objective(value: float | None, is_met: bool) -> None:
    assert Objective.parse("throttled_share<=1%").is_met(value) == is_met
