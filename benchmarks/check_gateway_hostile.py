"""Not a speed but a check: 200,000 hostile frames, from clients and from brokers, on the gateway's own protocols.

Valid frames that were changed, noise, and sizes that cannot be, cut anywhere, without sockets, so that each is seen to
its end. Nothing comes out of a callback, an error is one of a protocol's, a closed connection is closed on both sides,
memory stays bounded, no frame takes more than half a second, and connections beside notice nothing. Ends with 1 where
one of these is not so.

Usage: ``python -m benchmarks.check_gateway_hostile [--frames 200000] [--seed 1]``
"""

from __future__ import annotations

import argparse
import resource
import sys

from tests.kit.hostile_relay import MOST_KEPT_BYTES, attack
from tests.kit.virtual_loop import run_virtually

MOST_MS = 500
MOST_GROWTH_MB = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.check_gateway_hostile", description=__doc__.split("\n\n", maxsplit=1)[0]
    )
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    mistakes = run_virtually(attack(options.seed, options.frames // 10)).mistakes
    before_mb = _peak_mb()
    found = run_virtually(attack(options.seed + 1, options.frames - options.frames // 10))
    growth_mb = _peak_mb() - before_mb
    print(f"{found}; peak memory {growth_mb:+.1f} MB after the first tenth")
    mistakes += found.mistakes
    for mistake in mistakes:
        print(mistake)
    is_bounded = found.most_kept <= MOST_KEPT_BYTES and growth_mb <= MOST_GROWTH_MB and found.longest_ms <= MOST_MS
    return 0 if is_bounded and not mistakes else 1


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
