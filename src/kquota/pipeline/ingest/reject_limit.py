"""How many lines may be unusable."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from kquota.errors import InputError, KquotaError
from kquota.pipeline.dataset.dataset import Dataset

__all__ = ["RejectLimit", "TooManyRejectedError", "fail_above"]


@dataclass(frozen=True, slots=True)
class RejectLimit:
    """How many lines may be rejected before the job fails: a number, or per cent of good and rejected lines."""

    value: float
    per_cent: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``25`` or ``10%``.

        :raises InputError: it is neither.
        """
        number = text.strip().removesuffix("%")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        per_cent = text.strip().endswith("%")
        if not value >= 0 or (per_cent and value > 100) or (not per_cent and value % 1):
            raise InputError(f"`max_rejected` {text}: give a number of lines such as 100, or a share such as 10%")
        return cls(value, per_cent)

    def exceeded(self, *, good: int, rejected: int) -> bool:
        """Whether there are more rejected lines than the limit allows."""
        allowed = self.value * (good + rejected) / 100 if self.per_cent else self.value
        return rejected > allowed

    def __str__(self) -> str:
        return f"{self.value:g}{' %' if self.per_cent else ' lines'}"


class TooManyRejectedError(KquotaError):
    """More lines than allowed could not be used; the results of the others are written."""

    def __init__(self, rejected: int, lines: int, limit: RejectLimit, url: str) -> None:
        self.rejected, self.lines, self.limit, self.url = rejected, lines, limit, url
        super().__init__(
            f"{rejected:,} of {lines:,} lines could not be used, more than `max_rejected` allows ({limit}): "
            f"{url}/rejected has each with its reason; the results of the other lines are written"
        )


def fail_above(limit: RejectLimit, dataset: Dataset) -> None:
    """Fail where too many lines were rejected, after everything was written.

    :raises TooManyRejectedError: more than `limit`.
    """
    summary = dataset.summary
    if limit.exceeded(good=summary.good, rejected=summary.rejected):
        raise TooManyRejectedError(summary.rejected, summary.lines, limit, dataset.url)
