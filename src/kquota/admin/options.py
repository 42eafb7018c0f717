"""What may be said beside a request (KIP-546's options)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AlterClientQuotasOptions", "DescribeClientQuotasOptions", "ResolveClientQuotasOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClientQuotasOptions:
    """`timeout_ms`: by default the client's ``default.api.timeout.ms``."""

    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveClientQuotasOptions:
    """Without `omit_overridden_values` each value also tells which others it overrides."""

    timeout_ms: int | None = None
    omit_overridden_values: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotasOptions:
    """With `validate_only` nothing is changed, and the results are those that changing would have."""

    timeout_ms: int | None = None
    validate_only: bool = False
