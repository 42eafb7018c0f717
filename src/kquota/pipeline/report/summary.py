"""summary.json of an analysis, as the page needs it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kquota.errors import InputError
from kquota.pipeline.report.model import RateWindow, Summary

__all__ = ["rate_window", "read_summary", "zone_of"]

_SHOWN_VERSIONS: Final = 60
_SHOWN_INPUTS: Final = 20


def read_summary(directory: Path) -> Summary:
    """Read DIR/summary.json. A count that is absent from it is None here, and the page says "not recorded".

    :raises InputError: the file is missing or is not a JSON object.
    """
    path = directory / "summary.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{directory} holds no readable summary.json ({error.strerror}); give the directory that"
            " `kquota analyze --out` wrote"
        ) from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}); run `kquota analyze` again with --overwrite") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} does not hold a JSON object; run `kquota analyze` again with --overwrite")
    return Summary(
        timezone=str(found.get("timezone") or found.get("time_zone") or "UTC"),
        inputs=tuple(_text(one) for one in _sequence(found.get("inputs")))[:_SHOWN_INPUTS],
        **{name: _count(found.get(name)) for name in _COUNTS},
        versions=tuple(_versions(found.get("versions")))[:_SHOWN_VERSIONS],
        seconds=tuple((name, float(value)) for name, value in _pairs(found.get("seconds")) if _is_number(value)),
        settings=tuple(
            (name, value if isinstance(value, str) else float(value))
            for name, value in _pairs(found.get("settings"))
            if _is_number(value) or isinstance(value, str)
        ),
    )


_COUNTS: Final = (
    "lines",
    "good",
    "rejected",
    "blank",
    "forwarded",
    "clients",
    "meters",
    "limited_meters",
    "throttled_meters",
    "throttle_ms",
    "unknown_amounts",
)


def zone_of(summary: Summary) -> ZoneInfo:
    """Time zone in which the page prints times.

    :raises InputError: this machine does not know it.
    """
    try:
        return ZoneInfo(summary.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InputError(f"summary.json names the time zone {summary.timezone!r}, which is not known here") from error


def rate_window(summary: Summary, key: str) -> RateWindow:
    """Window of the enforced rate: quota.window.*, for mutations controller.quota.window.* (by default 11 x 1 s)."""
    prefix = "controller.quota.window" if key == "controller_mutation_rate" else "quota.window"
    settings = dict(summary.settings)
    return RateWindow(
        num=_whole(settings.get(f"{prefix}.num"), default=11),
        size_s=_whole(settings.get(f"{prefix}.size.seconds"), default=1),
    )


def _whole(value: float | str | None, *, default: int) -> int:
    try:
        return max(1, int(float(value))) if value is not None else default
    except (ValueError, OverflowError):
        return default


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _count(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _pairs(value: object) -> list[tuple[str, Any]]:
    return [(str(name), one) for name, one in value.items()] if isinstance(value, Mapping) else []


def _sequence(value: object) -> list[object]:
    match value:
        case None:
            return []
        case list():
            return list(value)
        case _:
            return [value]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _versions(value: object) -> list[tuple[str, str]]:
    """`{"0:11": 40, "0:12": 3}`, requests per API key and version, becomes ("Produce", "11, 12")."""
    by_api: dict[int, set[int]] = defaultdict(set)
    for name, _ in _pairs(value):
        api, _, version = name.partition(":")
        if api.isdecimal() and version.isdecimal():
            by_api[int(api)].add(int(version))
    return [
        (_API_NAMES.get(api, f"API {api}"), ", ".join(str(version) for version in sorted(versions)))
        for api, versions in sorted(by_api.items())
    ]


_API_NAMES: Final = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    11: "JoinGroup",
    12: "Heartbeat",
    13: "LeaveGroup",
    14: "SyncGroup",
    15: "DescribeGroups",
    16: "ListGroups",
    17: "SaslHandshake",
    18: "ApiVersions",
    19: "CreateTopics",
    20: "DeleteTopics",
    21: "DeleteRecords",
    22: "InitProducerId",
    23: "OffsetForLeaderEpoch",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    28: "TxnOffsetCommit",
    29: "DescribeAcls",
    30: "CreateAcls",
    31: "DeleteAcls",
    32: "DescribeConfigs",
    33: "AlterConfigs",
    35: "DescribeLogDirs",
    36: "SaslAuthenticate",
    37: "CreatePartitions",
    42: "DeleteGroups",
    43: "ElectLeaders",
    44: "IncrementalAlterConfigs",
    48: "DescribeClientQuotas",
    49: "AlterClientQuotas",
    50: "DescribeUserScramCredentials",
    51: "AlterUserScramCredentials",
    57: "UpdateFeatures",
    58: "Envelope",
    60: "DescribeCluster",
    61: "DescribeProducers",
    65: "DescribeTransactions",
    66: "ListTransactions",
    68: "ConsumerGroupHeartbeat",
    69: "ConsumerGroupDescribe",
    71: "GetTelemetrySubscriptions",
    72: "PushTelemetry",
    75: "DescribeTopicPartitions",
    76: "ShareGroupHeartbeat",
    77: "ShareGroupDescribe",
    78: "ShareFetch",
    79: "ShareAcknowledge",
}
