"""Quotas as files: our own quota file in YAML and JSON, those of other programs, and quotas over time.

Pure: text in, values out; whoever calls reads the file.
"""

from kquota.files.plain_json import dump_json
from kquota.files.quota_file import QuotaFile, QuotaFileEntry
from kquota.files.quota_timeline import QuotaHistory, QuotaPeriod, QuotasOverTime, QuotaTimeline
from kquota.files.reader import read_quota_file
from kquota.files.timestamps import parse_timestamp, timestamp_name
from kquota.files.writer import write_json, write_yaml

__all__ = [
    "QuotaFile",
    "QuotaFileEntry",
    "QuotaHistory",
    "QuotaPeriod",
    "QuotaTimeline",
    "QuotasOverTime",
    "dump_json",
    "parse_timestamp",
    "read_quota_file",
    "timestamp_name",
    "write_json",
    "write_yaml",
]
