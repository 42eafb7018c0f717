"""A gateway under hostile frames from both sides.

``benchmarks/check_gateway_hostile.py`` is the same at 200,000 frames.
"""

from __future__ import annotations

from tests.kit.hostile_relay import MOST_KEPT_BYTES, attack
from tests.kit.virtual_loop import run_virtually


def test_hostile_frames_cost_their_own_connection_and_nothing_else() -> None:
    found = run_virtually(attack(1, 3_000))
    assert found.mistakes == []
    assert found.most_kept <= MOST_KEPT_BYTES
    assert found.connections / 4 < found.refused < found.connections  # some of them are not so hostile
