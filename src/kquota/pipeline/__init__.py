"""The Spark side: from request logs and quotas to who is limited by what.

Importing this package is free: Spark, Arrow and what needs them are loaded with the first name that is used. Functions
over DataFrames are those of :mod:`kquota.pipeline.api`; :func:`analyze` is the whole job, and what it writes is read
through :class:`Dataset`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kquota.pipeline.advice.curve import Grid
    from kquota.pipeline.advice.recommended_limits import RecommendationGoal
    from kquota.pipeline.api import (
        calibrate,
        read_request_log,
        recommend,
        rejected,
        resolve,
        showback,
        sweep,
        throttled,
        usage,
        utilisation,
        what_if,
        with_timestamps,
    )
    from kquota.pipeline.data_sources import register
    from kquota.pipeline.dataset.dataset import Dataset
    from kquota.pipeline.jobs import Analysis, JobOptions, LogSettings, RejectLimit, analyze
    from kquota.pipeline.simulation.arrivals import ArrivalModel, Arrivals

__all__ = [
    "Analysis",
    "ArrivalModel",
    "Arrivals",
    "Dataset",
    "Grid",
    "JobOptions",
    "LogSettings",
    "RecommendationGoal",
    "RejectLimit",
    "analyze",
    "calibrate",
    "read_request_log",
    "recommend",
    "register",
    "rejected",
    "resolve",
    "showback",
    "sweep",
    "throttled",
    "usage",
    "utilisation",
    "what_if",
    "with_timestamps",
]

_ELSEWHERE = {
    "Analysis": "jobs",
    "ArrivalModel": "simulation.arrivals",
    "Arrivals": "simulation.arrivals",
    "Dataset": "dataset.dataset",
    "Grid": "advice.curve",
    "JobOptions": "jobs",
    "LogSettings": "jobs",
    "RecommendationGoal": "advice.recommended_limits",
    "RejectLimit": "jobs",
    "analyze": "jobs",
    "register": "data_sources",
}
"""Modules of names that are not in `api`."""


def __getattr__(name: str) -> object:
    """What the package exports, imported when it is first asked for."""
    if name in __all__:
        return getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'api')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
