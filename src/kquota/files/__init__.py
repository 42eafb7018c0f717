"""Quotas as files: our own quota file in YAML and JSON, those of other programs, and quotas over time.

Pure: text in, values out; whoever calls reads the file.
"""

from kquota.files.plain_json import dump_json
from kquota.files.quota_file import QuotaFile, QuotaFileEntry
from kquota.files.quota_timeline import DatedQuotas, QuotaHistory, QuotaPeriod, QuotasOverTime
from kquota.files.reader import read_quota_file
from kquota.files.timestamps import moment_name, parse_moment
from kquota.files.writer import write_json, write_yaml

__all__ = [
    "DatedQuotas",
    "QuotaFile",
    "QuotaFileEntry",
    "QuotaHistory",
    "QuotaPeriod",
    "QuotasOverTime",
    "dump_json",
    "moment_name",
    "parse_moment",
    "read_quota_file",
    "write_json",
    "write_yaml",
]
