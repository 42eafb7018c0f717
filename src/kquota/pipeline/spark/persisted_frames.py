"""DataFrames that a job persists while it runs, and no longer: the session may be its caller's.

Outside a job, in a plan of the caller's own, nothing is persisted: when to let go of it, only they know.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["persist", "unpersisting"]

_PERSISTED: Final[ContextVar[list[DataFrame]]] = ContextVar("persisted frames")


def persist(frame: DataFrame) -> DataFrame:
    """Persist a frame until the end of :func:`unpersisting`; elsewhere it stays as it is."""
    persisted = _PERSISTED.get(None)
    if persisted is not None:
        persisted.append(frame.persist())
    return frame


@contextmanager
def unpersisting() -> Iterator[None]:
    """What is persisted within is unpersisted at the end, the last first."""
    persisted: list[DataFrame] = []
    outer = _PERSISTED.set(persisted)
    try:
        yield
    finally:
        _PERSISTED.reset(outer)
        for frame in reversed(persisted):
            frame.unpersist()
