"""Where quotas live. :func:`open_store` opens one by its URL; all are :class:`QuotaStore`.

==================== ==========================================================================
``sqlite:///rel.db`` a file, relative (``sqlite:////abs.db``: absolute); every change is kept
``memory:``          gone when closed
==================== ==========================================================================

:class:`QuotaFeed` follows one, and brings its changes to quota managers; :func:`open_watchable` opens a cluster or a
quota file to be followed, too.
"""

from kquota.stores.feed import QuotaFeed, quota_changes
from kquota.stores.port import Commit, ComparesAndSets, HasHistory, QuotaStore, Servable, Watchable
from kquota.stores.url import Access, open_store, open_watchable
from kquota.stores.watch import Look, QuotaWatch

__all__ = [
    "Access",
    "Commit",
    "ComparesAndSets",
    "HasHistory",
    "Look",
    "QuotaFeed",
    "QuotaStore",
    "QuotaWatch",
    "Servable",
    "Watchable",
    "open_store",
    "open_watchable",
    "quota_changes",
]
