"""The quotas that a directory was analysed with: kept beside its tables, and read again by later steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kquota.errors import InputError
from kquota.files import (
    QuotaFile,
    QuotaPeriod,
    QuotasOverTime,
    QuotaTimeline,
    read_quota_file,
    timestamp_name,
    write_yaml,
)
from kquota.pipeline.dataset.tables import LIMITS
from kquota.pipeline.limits.periods import has_periods
from kquota.stores.folder import read_quota_folder, write_quota_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "decode_quotas",
    "encode_quotas",
    "latest_quotas",
    "quota_files",
    "quotas_in_force",
    "read_dataset_quotas",
    "write_dataset_quotas",
]


class _Period(msgspec.Struct):
    valid_from_ms: int | None
    quotas: str
    """As a quota file."""


class _Quotas(msgspec.Struct):
    periods: list[_Period]
    recorded_from_ms: int | None


def encode_quotas(quotas: QuotaTimeline) -> bytes:
    """As a dataset keeps them, in one file."""
    periods = [_Period(valid_from_ms, write_yaml(file)) for valid_from_ms, file in quotas.periods]
    return msgspec.json.encode(_Quotas(periods, quotas.recorded_from_ms))


def decode_quotas(content: bytes, *, name: str) -> QuotaTimeline:
    """What :func:`encode_quotas` wrote."""
    read = msgspec.json.decode(content, type=_Quotas)
    periods = [
        QuotaPeriod(one.valid_from_ms, read_quota_file(one.quotas, name=name, format="yaml")) for one in read.periods
    ]
    return QuotaTimeline(tuple(periods), recorded_from_ms=read.recorded_from_ms)


def quota_files(quotas: QuotaTimeline) -> dict[str, bytes]:
    """For people: the last ones as quotas.yaml, and where they changed, a file in ``quotas`` for each time."""
    files = {"quotas.yaml": write_yaml(quotas.last or QuotaFile(())).encode()}
    if len(quotas.periods) > 1:
        for valid_from_ms, file in quotas.periods:
            if valid_from_ms is not None:
                files[f"quotas/{timestamp_name(valid_from_ms)}.yaml"] = write_yaml(file).encode()
    return files


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
