"""What becomes true a moment later: a broker learns what its controller did after the controller has answered."""

import time
from collections.abc import Callable
from typing import Any, Final

__all__ = ["eventually"]

PATIENCE_S: Final = 20.0


def eventually(ask: Callable[[], Any], expected: Any, *, patience_s: float = PATIENCE_S) -> None:
    """Ask until the answer is the one expected.

    :raises AssertionError: it never was.
    """
    end = time.monotonic() + patience_s
    while (found := ask()) != expected:
        assert time.monotonic() < end, (found, expected)
        time.sleep(0.02)
