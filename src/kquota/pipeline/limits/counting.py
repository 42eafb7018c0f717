"""When, and by whom, a broker's log says that a request was counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from kquota.quotas import CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["CONTROLLER", "counted_at_ms", "counting_broker", "in_purgatory"]

CONTROLLER: Final = -1
"""In place of a broker's id: the controller, which counts mutations whichever broker the client asked."""

_IN_PURGATORY_MS: Final = 5.0


def in_purgatory() -> Column:
    """Of a row of `requests`: whether the request waited in a purgatory, and was counted when it left that.

    Other requests are counted by the handler, before the time that the log calls remote.
    """
    return F.col("remote_ms") >= _IN_PURGATORY_MS


def counted_at_ms() -> Column:
    """Of a row of `requests`: when it was counted."""
    key = F.col("key")
    # The remote time comes after the counting.
    before_answer = (key == CONTROLLER_MUTATION_RATE) | (
        key.isin(PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE) & ~in_purgatory()
    )
    return F.col("record_ms") - F.when(before_answer, F.col("remote_ms")).otherwise(0.0)


def counting_broker() -> Column:
    """Of a row of `requests` or `usage`: the broker that counts it, or :data:`CONTROLLER`."""
    return F.when(F.col("key") == CONTROLLER_MUTATION_RATE, CONTROLLER).otherwise(F.col("broker_id"))
