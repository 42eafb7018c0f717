"""The steps of the pipeline: what each reads and writes. What follows is derived, and written down nowhere else.

Names are those of tables, and ``quotas`` (those that the dataset is judged by) and ``report``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from kquota.pipeline.dataset.summary import Summary
from kquota.pipeline.dataset.tables import ALL_TABLES

__all__ = [
    "ANALYZE_STEP",
    "DOCUMENTS",
    "INGEST_STEP",
    "QUOTAS",
    "RECOMMEND_STEP",
    "REPORT",
    "REPORT_STEP",
    "RESOLVE_STEP",
    "SHOWBACK_STEP",
    "STEPS",
    "SWEEP_STEP",
    "UTILISATION_STEP",
    "WHATIF_STEP",
    "Step",
    "changed_by",
    "reset_parts",
    "written_by",
]

QUOTAS: Final = "quotas"
REPORT: Final = "report"
DOCUMENTS: Final = (QUOTAS, REPORT)
"""What a dataset has besides tables."""


class Step(NamedTuple):
    """What a step needs (`reads`), uses if it is there (`optional`), and writes; `parts` are fields of the summary."""

    name: str
    reads: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()

    @property
    def used(self) -> frozenset[str]:
        """What it reads if it is there."""
        return frozenset(self.reads + self.optional)

    @property
    def is_judged(self) -> bool:
        """Whether what it writes depends on quotas."""
        return QUOTAS in self.used | {*self.writes}

    @property
    def begins_anew(self) -> bool:
        """Whether it needs nothing of the dataset, and so replaces all of it."""
        return not self.used


_RESOLVED: Final = ("clients", "meters", "limited_meters", "throttle_ms", "throttled_requests", "quotas_over_time")
_LATER: Final = ("throttled_meters", "calibration", "whatif", "curve", "recommendations", "showback", "seconds")
_INGESTED: Final = tuple(name for name in Summary.__struct_fields__ if name not in _RESOLVED + _LATER)

INGEST_STEP: Final = Step("ingest", writes=("usage", "requests", "rejected"), parts=_INGESTED)
RESOLVE_STEP: Final = Step("resolve", reads=("usage",), writes=("clients", "limits", QUOTAS), parts=_RESOLVED)
UTILISATION_STEP: Final = Step(
    "utilisation",
    reads=("usage", QUOTAS),
    optional=("requests",),
    writes=("utilisation", "throttled", "calibration"),
    parts=("throttled_meters", "calibration"),
)
_JUDGED: Final = ("clients", QUOTAS)
WHATIF_STEP: Final = Step(
    "whatif", reads=("usage",), optional=("requests", *_JUDGED), writes=("whatif",), parts=("whatif",)
)
SWEEP_STEP: Final = Step("sweep", reads=("usage",), optional=_JUDGED, writes=("curve",), parts=("curve",))
RECOMMEND_STEP: Final = Step(
    "recommend", reads=("usage",), optional=_JUDGED, writes=("recommendations",), parts=("recommendations",)
)
SHOWBACK_STEP: Final = Step(
    "showback", reads=("usage",), optional=("limits", *_JUDGED), writes=("showback",), parts=("showback",)
)
REPORT_STEP: Final = Step("report", optional=(*ALL_TABLES, QUOTAS), writes=(REPORT,))
STEPS: Final = (
    INGEST_STEP,
    RESOLVE_STEP,
    UTILISATION_STEP,
    WHATIF_STEP,
    SWEEP_STEP,
    RECOMMEND_STEP,
    SHOWBACK_STEP,
    REPORT_STEP,
)

_OF_ANALYZE: Final = (INGEST_STEP, RESOLVE_STEP, UTILISATION_STEP, REPORT_STEP)
ANALYZE_STEP: Final = Step(
    "analyze",
    writes=tuple(name for step in _OF_ANALYZE for name in step.writes),
    parts=tuple(name for step in _OF_ANALYZE for name in step.parts),
)
"""Four of them in one run."""


def written_by(name: str) -> Step:
    """The step that writes a table, the quotas or the report."""
    return next(step for step in STEPS if name in step.writes)


def changed_by(step: Step, present: Collection[str]) -> frozenset[str]:
    """What is written anew, or no longer there, after a step; what it may write and does not is dropped.

    :param present: what is there before. Of other quotas than before, nothing stays that was judged by those.
    """
    if step.begins_anew:
        return frozenset(step.writes).union(present)
    judged = {name for name in present if written_by(name).is_judged} if QUOTAS in step.writes else set()
    return frozenset(judged).union(step.writes)


def reset_parts(step: Step) -> frozenset[str]:
    """Fields of the summary that do not outlive a step unless it sets them."""
    if step.begins_anew:
        return frozenset(Summary.__struct_fields__)
    judged = [part for one in STEPS if one.is_judged for part in one.parts] if QUOTAS in step.writes else []
    return frozenset(judged).union(step.parts)
