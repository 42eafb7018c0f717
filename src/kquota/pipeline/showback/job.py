"""The step `showback`: who used how much, from a directory that was analysed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from kquota.pipeline.analysis import read_table, read_usage
from kquota.pipeline.dataset.output_directory import OutputDirectory
from kquota.pipeline.dataset.quotas import latest_quotas
from kquota.pipeline.dataset.table_files import write_table
from kquota.pipeline.dataset.tables import CLIENTS, LIMITS, SHOWBACK
from kquota.pipeline.jobs import JobOptions, add_to, check_time_zone, spark_for
from kquota.pipeline.showback.by_owner import to_client_days, to_showback, to_unowned, with_owners
from kquota.pipeline.spark.persisted_frames import keep
from kquota.policy import UNOWNED, OwnerMap, OwnerRule

__all__ = ["Showback", "showback"]


@dataclass(frozen=True, slots=True)
class Showback:
    """What the step `showback` has to say: its table, and who has no owner, those that used most first."""

    rows: tuple[Mapping[str, Any], ...]
    unowned: tuple[Mapping[str, Any], ...]
    """Clients: user, client_id, ip, share."""
    knows_owners: bool
    has_limits: bool


def showback(rules: Sequence[OwnerRule], timezone: str, options: JobOptions) -> Showback:
    """`usage` and, where they are there, `clients` of an existing directory to `showback`.

    Clients that no rule knows belong to whom the directory's quotas.yaml says.
    """
    check_time_zone(timezone)
    progress = options.progress()
    directory = options.out
    with OutputDirectory.existing(directory, SHOWBACK.name) as output, spark_for(options, progress) as spark:
        has_quotas = (directory / "quotas.yaml").is_file()
        owners = OwnerMap(rules, latest_quotas(directory) if has_quotas else None)
        limits = next((table for table in (LIMITS, CLIENTS) if (directory / table.name).is_dir()), None)
        with progress.stage("add up by owner"):
            days = keep(with_owners(to_client_days(read_usage(spark, directory), ZoneInfo(timezone)), owners))
            table = to_showback(days, None if limits is None else read_table(spark, directory, limits))
            write_table(table, output.staging, SHOWBACK)
            unowned = tuple(row.asDict() for row in to_unowned(days).collect())
        written = read_table(spark, output.staging, SHOWBACK).orderBy("cluster", "date", "key", "owner")
        rows = tuple(row.asDict() for row in written.collect())
        part = {
            "timezone": timezone,
            "owners": len({row["owner"] for row in rows} - {UNOWNED}),
            "unowned": len(unowned),
        }
        add_to(output, [SHOWBACK.name], {"showback": part}, progress)
    return Showback(rows, unowned, bool(owners), limits is not None)
