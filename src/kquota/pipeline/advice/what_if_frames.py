"""A recording under two sets of quotas, as frames of Spark. Nothing runs when they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kquota.config import BrokerConfig
from kquota.pipeline.advice.what_if import NEW, OLD, changed, to_bindings, to_what_if, with_old_limits
from kquota.pipeline.simulation.arrivals import Arrivals
from kquota.pipeline.simulation.cell_frames import simulate_cell_frames_by_quota_set
from kquota.pipeline.simulation.recording import Recording, recording_spans
from kquota.pipeline.simulation.request_frames import (
    callback_bindings,
    simulate_callback_frames,
    simulate_request_frames,
)
from kquota.pipeline.spark.persisted_frames import persist
from kquota.quotas import QuotaSnapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kquota.pipeline.simulation.limiters import CallbackSetup
    from kquota.pipeline.spark.parquet_source import ArrowSource

__all__ = ["WhatIfFrames", "simulate_both"]


@dataclass(frozen=True, slots=True)
class WhatIfFrames:
    """A recording under the current limits and under the candidates."""

    what_if: DataFrame
    """The table `whatif`: one row per broker, meter and key."""
    candidate: DataFrame
    """Columns of :data:`~kquota.pipeline.simulation.recording.SIMULATED`, under the candidates."""
    bindings: DataFrame
    """As :func:`~kquota.pipeline.advice.what_if.to_bindings` gives them."""
    recording: Recording
    grain: str
    """What was simulated one by one, ``request`` or ``cell``."""


def simulate_both(
    usage: ArrowSource,
    clients: DataFrame,
    old: QuotaSnapshot,
    new: QuotaSnapshot,
    *,
    requests: DataFrame | None,
    arrivals: Arrivals,
    broker_config: BrokerConfig,
    is_recorded: bool,
    only_changed: bool,
    callback: CallbackSetup | None = None,
) -> WhatIfFrames:
    """Simulate the usage under the quotas `old`, and under `new` or a callback.

    :param usage: rows of the `usage` table.
    :param clients: who is in the usage: a row for each cluster, user, client_id, ip and key.
    :param requests: rows of the `requests` table, all that the usage is made of, which are then simulated one by one.
    :param is_recorded: whether `old` were in force during the recording.
    :param only_changed: leave out meters that nothing changes for.
    :param callback: needs the requests.
    """
    bindings = persist(to_bindings(clients, old, new, static_defaults=broker_config.static_defaults))
    if only_changed:
        bindings = persist(changed(bindings))
    recording = Recording(arrivals, broker_config, persist(recording_spans(usage)))
    if requests is None:
        current, candidate = simulate_cell_frames_by_quota_set(usage, bindings, (OLD, NEW), recording)
    else:
        current = simulate_request_frames(requests, with_old_limits(bindings), recording)
        if callback is None:
            candidate = persist(simulate_request_frames(requests, bindings, recording))
        else:
            by_callback = persist(simulate_callback_frames(requests, callback, recording))
            candidate = by_callback.drop("members")
            bindings = persist(callback_bindings(by_callback, bindings))
    grain = "cell" if requests is None else "request"
    table = to_what_if(bindings, candidate, current, model=arrivals.model, grain=grain, is_recorded=is_recorded)
    return WhatIfFrames(persist(table), candidate, bindings, recording, grain)
