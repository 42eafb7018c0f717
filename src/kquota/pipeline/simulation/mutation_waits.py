"""How long mutations wait for their tokens, without a loop: the bucket of KIP-599 has a closed form.

Let X be what was asked for so far, less what has come back: X(t) = amounts up to t - limit * t. What is missing from a
full bucket at t is then X(t) less the lowest that X ever was. A request is done once no more is missing than the bucket
holds, and repeated by its client until then.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kquota.metering.statistics import Windows

__all__ = ["mutation_delays_ms", "token_deficit"]

Floats = npt.NDArray[np.float64]


def token_deficit(at_ms: Floats, amounts: Floats, limits: Floats) -> Floats:
    """What is missing from a full bucket before each request: a row for each limit, a column for each request.

    :param at_ms: in order.
    :param limits: tokens per second, above zero and finite.
    """
    back = np.multiply.outer(limits, (at_ms - at_ms[0]) / 1000)
    asked = np.cumsum(amounts) - amounts - back
    missing: Floats = asked - np.minimum.accumulate(asked, axis=1)
    return missing


def mutation_delays_ms(at_ms: Floats, amounts: Floats, limits: Floats, windows: Windows) -> Floats:
    """How long each request waits, in whole ms: a row for each limit, a column for each request.

    Requests are done in their order. Parameters as for :func:`token_deficit`.

    With 2 tokens per second and a bucket of 11 seconds' worth (22), three requests of 20 at once, and one of 4 ten
    seconds later. The first finds the bucket full. The second finds 2, which is enough to be done, and leaves -18: the
    third waits until 18 have come back, which are 9 s, and leaves -38. Of those, 20 have come back when the last one
    arrives: it waits for 18.

    >>> at_ms, amounts = np.array([0.0, 0.0, 0.0, 10_000.0]), np.array([20.0, 20.0, 20.0, 4.0])
    >>> mutation_delays_ms(at_ms, amounts, np.array([2.0]), Windows(11, 1_000)).tolist()
    [[0.0, 0.0, 9000.0, 9000.0]]
    """
    burst = windows.span_ms / 1000 * limits[:, np.newaxis]
    # Of a few tokens too many that were computed, and not asked for, nobody waits.
    missing = np.maximum(token_deficit(at_ms, amounts, limits) - burst - 1e-9 * burst, 0.0)
    waits_ms: Floats = np.ceil(missing / limits[:, np.newaxis] * 1000)
    return waits_ms
