"""Desired quotas against current ones: differences, plans, lint, side effects, owners, objectives.

Pure: values in, values out; carrying a plan out is `kquota.stores`.
"""

from kquota.policy.difference import alterations, difference
from kquota.policy.findings import Finding, Severity
from kquota.policy.impact import NO_IMPACT, Impact, PlanImpact
from kquota.policy.lint import lint
from kquota.policy.objectives import OBJECTIVES, Objective
from kquota.policy.owners import UNOWNED, OwnerMap, OwnerRule, read_owner_rules
from kquota.policy.plan import Drift, Plan, PlannedChange, PlanStatus, PlanTarget
from kquota.policy.plan_json import is_plan, read_plan, write_plan
from kquota.policy.side_effects import side_effects

__all__ = [
    "NO_IMPACT",
    "OBJECTIVES",
    "UNOWNED",
    "Drift",
    "Finding",
    "Impact",
    "Objective",
    "OwnerMap",
    "OwnerRule",
    "Plan",
    "PlanImpact",
    "PlanStatus",
    "PlanTarget",
    "PlannedChange",
    "Severity",
    "alterations",
    "difference",
    "is_plan",
    "lint",
    "read_owner_rules",
    "read_plan",
    "side_effects",
    "write_plan",
]
