"""The step `showback`: who used how much, from a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.spark_run import JobOptions, spark_run
from kquota.pipeline.dataset.steps import SHOWBACK_STEP
from kquota.pipeline.dataset.summary import ShowbackRun
from kquota.pipeline.dataset.tables import CLIENTS, LIMITS, SHOWBACK, USAGE
from kquota.pipeline.ingest.time_zone import check_time_zone
from kquota.pipeline.owners.by_owner import to_client_days, to_showback, to_unowned, with_owners
from kquota.pipeline.spark.persisted_frames import persist
from kquota.policy import UNOWNED, OwnerMap, OwnerRule

__all__ = ["Showback", "showback"]


@dataclass(frozen=True, slots=True)
class Showback:
    """What the step `showback` found: its table, and the clients without an owner, those that used most first."""

    rows: tuple[Mapping[str, Any], ...]
    unowned: tuple[Mapping[str, Any], ...]
    """Clients: user, client_id, ip, share."""
    knows_owners: bool
    has_limits: bool


def showback(rules: Sequence[OwnerRule], timezone: str, options: JobOptions) -> Showback:
    """`usage` and, where they are there, `clients` of a dataset to `showback`.

    Clients that no rule matches belong to the owner that the dataset's quotas name.
    """
    check_time_zone(timezone)
    with spark_run(options, SHOWBACK_STEP, Dataset.open(options.out)) as run:
        quotas = run.quotas()
        owners = OwnerMap(rules, None if quotas is None else quotas.last)
        limits = next((table for table in (LIMITS, CLIENTS) if run.has(table.name)), None)
        with run.stage("add up by owner"):
            days = persist(with_owners(to_client_days(run.source(USAGE.name), ZoneInfo(timezone)), owners))
            run.write(SHOWBACK.name, to_showback(days, None if limits is None else run.frame(limits.name)))
            unowned = tuple(row.asDict() for row in to_unowned(days).collect())
        written = run.frame(SHOWBACK.name).orderBy("cluster", "date", "key", "owner")
        rows = tuple(row.asDict() for row in written.collect())
        named = {row["owner"] for row in rows} - {UNOWNED}
        run.summary.showback = ShowbackRun(timezone, len(named), len(unowned))
        run.commit()
    return Showback(rows, unowned, bool(owners), limits is not None)
