"""The quotas that a dataset is judged by: with their past in one file, and for people as quota files."""

from __future__ import annotations

import msgspec

from kquota.files import (
    QuotaFile,
    QuotaPeriod,
    QuotaTimeline,
    read_quota_file,
    timestamp_name,
    write_yaml,
)

__all__ = ["decode_quotas", "encode_quotas", "quota_files"]


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


def quota_files(quotas: QuotaTimeline, start_ms: int | None) -> dict[str, bytes]:
    """For people: the last ones as quotas.yaml, and where they changed, a file in ``quotas`` for each time.

    :param start_ms: when the recording begins; what was in force before the first of them is not known.
    """
    files = {"quotas.yaml": write_yaml(quotas.last or QuotaFile(())).encode()}
    first_ms = quotas.periods[0].valid_from_ms if quotas.periods else None
    if len(quotas.periods) > 1 or (first_ms is not None and start_ms is not None and start_ms < first_ms):
        for valid_from_ms, file in quotas.periods:
            if valid_from_ms is not None:
                files[f"quotas/{timestamp_name(valid_from_ms)}.yaml"] = write_yaml(file).encode()
    return files
