"""Quotas as files: our own quota file in YAML and JSON, what has to change for quotas to become those of a file, and
plans of such changes.

Pure: text in, values out; whoever calls reads the file.
"""

from kquota.files.dated import DatedQuotas, QuotaHistory, QuotaPeriod, QuotasOverTime
from kquota.files.difference import alterations, difference
from kquota.files.findings import Finding, Severity
from kquota.files.impact import NO_IMPACT, OBJECTIVES, Impact, Objective
from kquota.files.lint import lint
from kquota.files.moments import moment_name, parse_moment
from kquota.files.owners import UNOWNED, OwnerMap, OwnerRule, read_owner_rules
from kquota.files.plain_json import dump_json
from kquota.files.plan import Moved, Plan, PlannedChange, PlanTarget, Standing
from kquota.files.plan_json import is_plan, read_plan, write_plan
from kquota.files.quota_file import QuotaFile, QuotaFileEntry
from kquota.files.reader import read_quota_file
from kquota.files.traps import traps
from kquota.files.writer import write_json, write_yaml

__all__ = [
    "NO_IMPACT",
    "OBJECTIVES",
    "UNOWNED",
    "DatedQuotas",
    "Finding",
    "Impact",
    "Moved",
    "Objective",
    "OwnerMap",
    "OwnerRule",
    "Plan",
    "PlanTarget",
    "PlannedChange",
    "QuotaFile",
    "QuotaFileEntry",
    "QuotaHistory",
    "QuotaPeriod",
    "QuotasOverTime",
    "Severity",
    "Standing",
    "alterations",
    "difference",
    "dump_json",
    "is_plan",
    "lint",
    "moment_name",
    "parse_moment",
    "read_owner_rules",
    "read_plan",
    "read_quota_file",
    "traps",
    "write_json",
    "write_plan",
    "write_yaml",
]
