"""Apache Kafka's client-quota system, usable on its own."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kquota.quotas import (
        CLIENT_ID,
        IP,
        USER,
        ClientQuotaAlteration,
        ClientQuotaEntity,
        ClientQuotaFilter,
        ClientQuotaFilterComponent,
    )

__all__ = [
    "CLIENT_ID",
    "IP",
    "USER",
    "ClientQuotaAlteration",
    "ClientQuotaEntity",
    "ClientQuotaFilter",
    "ClientQuotaFilterComponent",
    "__version__",
]

_FROM_QUOTAS = frozenset(__all__) - {"__version__"}


def __getattr__(name: str) -> object:
    """KIP-546's types and their constants, imported when first asked for."""
    if name in _FROM_QUOTAS:
        from kquota import quotas  # noqa: PLC0415 - so that `import kquota` stays free

        return getattr(quotas, name)
    raise AttributeError(f"module 'kquota' has no attribute {name!r}")
