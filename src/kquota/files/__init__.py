"""Quotas as files: our own quota file in YAML and JSON, and what has to change for quotas to become those of a file.

Pure: text in, values out; whoever calls reads the file.
"""

from kquota.files.dated import DatedQuotas, QuotaHistory, QuotaPeriod, QuotasOverTime
from kquota.files.difference import alterations, difference
from kquota.files.moments import moment_name, parse_moment
from kquota.files.owners import UNOWNED, OwnerMap, OwnerRule, read_owner_rules
from kquota.files.plain_json import dump_json
from kquota.files.quota_file import QuotaFile, QuotaFileEntry
from kquota.files.reader import read_quota_file
from kquota.files.writer import write_json, write_yaml

__all__ = [
    "UNOWNED",
    "DatedQuotas",
    "OwnerMap",
    "OwnerRule",
    "QuotaFile",
    "QuotaFileEntry",
    "QuotaHistory",
    "QuotaPeriod",
    "QuotasOverTime",
    "alterations",
    "difference",
    "dump_json",
    "moment_name",
    "parse_moment",
    "read_owner_rules",
    "read_quota_file",
    "write_json",
    "write_yaml",
]
