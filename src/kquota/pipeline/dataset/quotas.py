"""The quotas that a directory was analysed with: kept beside its tables, and read again by later steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kquota.errors import InputError
from kquota.files import QuotaFile, QuotasOverTime, QuotaTimeline, read_quota_file, write_yaml
from kquota.pipeline.dataset.tables import LIMITS
from kquota.pipeline.limits.periods import has_periods
from kquota.stores.folder import read_quota_folder, write_quota_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["latest_quotas", "quotas_in_force", "read_dataset_quotas", "write_dataset_quotas"]


def quotas_in_force(quotas: QuotasOverTime, summary: Mapping[str, Any]) -> QuotaTimeline:
    """Those of the time that a directory with this summary.json is about."""
    return quotas.within(summary.get("start_ms"), summary.get("end_ms"))


def write_dataset_quotas(quotas: QuotaTimeline, clients: DataFrame, staging: Path) -> list[str]:
    """Write quotas.yaml (the last ones) and, where they changed, the folder `quotas`; what there is to publish."""
    (staging / "quotas.yaml").write_text(write_yaml(quotas.last or QuotaFile(())), encoding="utf-8")
    if not has_periods(clients):
        return ["quotas.yaml"]
    write_quota_folder(staging / "quotas", quotas)
    return ["quotas.yaml", "quotas", LIMITS.name]


def read_dataset_quotas(directory: Path) -> QuotaTimeline:
    """Those of a directory, with their past.

    :raises InputError: there are none.
    """
    if (directory / "quotas").is_dir():
        return read_quota_folder(directory / "quotas")
    return QuotaTimeline.always(latest_quotas(directory))


def latest_quotas(directory: Path) -> QuotaFile:
    """quotas.yaml of a directory: the last quotas in force.

    :raises InputError: it is not there.
    """
    path = directory / "quotas.yaml"
    try:
        content = path.read_bytes()
    except OSError:
        raise InputError(
            f"{directory} has no quotas.yaml: run `kquota pipeline resolve --dataset {directory}` first"
        ) from None
    return read_quota_file(content, name=str(path))
