"""The beginning of a line that could not be used, safe to look at."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["SAMPLE_BYTES", "printable"]

SAMPLE_BYTES: Final = 200
_UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def printable(line: bytes) -> str:
    """At most :data:`SAMPLE_BYTES` of a line, what cannot be printed as its code."""
    sample = line[:SAMPLE_BYTES].decode("utf-8", "backslashreplace")
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), sample)
