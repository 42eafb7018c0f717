"""DataFrames that a job persists while it runs, and no longer: the session may be its caller's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["keep", "unpersisting"]

_KEPT: Final[ContextVar[list[DataFrame]]] = ContextVar("kept frames")


def keep(frame: DataFrame) -> DataFrame:
    """Persist a frame, within :func:`unpersisting` until that ends."""
    frame = frame.persist()
    _KEPT.get([]).append(frame)
    return frame


@contextmanager
def unpersisting() -> Iterator[None]:
    """What is kept within is unpersisted at the end, the last first."""
    kept: list[DataFrame] = []
    outer = _KEPT.set(kept)
    try:
        yield
    finally:
        _KEPT.reset(outer)
        for frame in reversed(kept):
            frame.unpersist()
