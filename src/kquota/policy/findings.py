"""What is worth knowing about quotas that are legal and still may not do what was meant."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kquota.quotas import ClientQuotaEntity

__all__ = ["Finding", "Severity", "in_order"]


class Severity(StrEnum):
    """How bad it is: ``error`` cannot work, ``warning`` is probably not meant, ``info`` may surprise."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """The worst is 0."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found: which rule of ``docs/lint.md`` it is, what it is about, and what to do.

    ``entity`` is None where it is about none, ``key`` where it is about all values of the entity.
    """

    rule: str
    severity: Severity
    entity: ClientQuotaEntity | None
    key: str | None
    message: str


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sorted by entity, by key, and the worst first; what is about no entity goes before all."""
    return tuple(sorted(findings, key=_sort_key))


def _sort_key(finding: Finding) -> tuple[object, ...]:
    entity = () if finding.entity is None else finding.entity.sort_key()
    return entity, finding.key or "", finding.severity.rank, finding.rule, finding.message
