"""The port over the wire: the contract of every store, on a server of ours."""

from collections.abc import Iterator

import pytest

from kquota.admin import QuotaAdmin
from kquota.stores import QuotaStore, open_store
from kquota.stores.cluster import ClusterStore
from tests.kit.quota_server import running_server
from tests.kit.store_contract import StoreContract


class TestClusterStore(StoreContract):
    """What goes out as requests comes back the same."""

    @pytest.fixture
    def store(self) -> Iterator[QuotaStore]:
        with (
            open_store("memory:") as kept,
            running_server(kept) as address,
            ClusterStore(QuotaAdmin(str(address), timeout_ms=20_000)) as store,
        ):
            yield store
