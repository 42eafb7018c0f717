"""Where quotas live. :func:`open_store` opens one by its URL; all are :class:`QuotaStore`.

==================== ==========================================================================
``sqlite:///rel.db`` a file, relative (``sqlite:////abs.db``: absolute); every change is kept
``memory:``          gone when closed
==================== ==========================================================================
"""

from kquota.stores.port import Commit, ComparesAndSets, HasHistory, QuotaStore
from kquota.stores.url import Access, open_store

__all__ = ["Access", "Commit", "ComparesAndSets", "HasHistory", "QuotaStore", "open_store"]
