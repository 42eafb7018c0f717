"""What to do about rejected lines, by words of the reason that the ingest gives."""

from __future__ import annotations

from typing import Final

__all__ = ["rejection_hint"]

_ADVICE: Final = {
    "text format of kafka before 2.8": (
        "Brokers before 2.8 log requests as text, which does not hold their sizes. Use the log of a newer broker."
    ),
    "not a line of the request log": (
        "The file has other messages too. They do no harm; an appender of its own for kafka.request.logger would"
        " keep them out."
    ),
    "broken json": (
        "The line is cut short or damaged: usual at the end of a file that was copied while the broker wrote it. If"
        " there are many, look for a shipper that cuts long lines."
    ),
    "not the request that kafka logs": (
        "The line is JSON but lacks a field, or holds one of another type, so nothing was counted for it rather than 0."
        " Was the log filtered or rewritten on its way?"
    ),
    "no time before": "The line does not begin with its time. The pattern of the log appender must begin with [%d].",
    "impossible time": "Look at the pattern of the log appender and at the broker's clock.",
    "gz": "The compressed file ends early or is damaged. Copy it again; what is before the damage was counted.",
}
"""By words of the reason, in lower case."""

_GENERAL: Final = (
    "Compare the sample with a line that was read. The table `rejected` has every such line with its file and number."
)


def rejection_hint(reason: str) -> str:
    """One or two sentences for the person who has the log."""
    lower = reason.lower()
    for words, text in _ADVICE.items():
        if words in lower:
            return text
    return _GENERAL
