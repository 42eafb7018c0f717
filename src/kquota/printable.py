"""Text of others made safe to show: on a terminal, in a log, in an error."""

import re
from typing import Final

__all__ = ["printable", "without_login"]

_CONTROL: Final = re.compile(
    # C0, DEL and C1: what terminals obey. U+061C, U+200E-F, U+202A-E, U+2066-9: what turns the order of what is read
    # (Unicode's Bidi_Control). U+2028-9: ends of lines. Half surrogate pairs: what no output can encode.
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_LOGIN: Final = re.compile(r"://[^/?#]*@")


def printable(text: str) -> str:
    r"""`text` on one line, its control characters written as ``\u001b``; what has none is as it was.

    JSON reads the escapes back where `text` is a JSON text.
    """
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def without_login(url: str) -> str:
    """`url` without the user name and password in it."""
    return _LOGIN.sub("://***@", url)
