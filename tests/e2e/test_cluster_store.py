"""The port over the wire: the contract of every store, on a server of ours."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from kquota.admin import QuotaAdmin
from kquota.errors import ConnectionFailedError
from kquota.policy import alterations, difference
from kquota.quotas import ClientQuotaFilter, QuotaSnapshot
from kquota.stores import QuotaStore, open_store
from kquota.stores.cluster import ClusterStore
from tests.kit.quota_server import running_server
from tests.kit.store_contract import ALICE, StoreContract, WatchableContract, Watched, everything, set_to


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


class TestFollowing(WatchableContract):
    """A cluster is followed, also through the end and the return of its broker."""

    @pytest.fixture
    def watched(self) -> Iterator[Watched]:
        with open_store("memory:") as kept, ExitStack() as servers:
            server = ExitStack()
            servers.push(lambda *_: server.close())
            address = server.enter_context(running_server(kept))

            def put(quotas: QuotaSnapshot) -> None:
                kept.alter(alterations(difference(everything(kept), quotas, prune=True)))

            @contextmanager
            def failing() -> Iterator[None]:
                server.close()
                yield
                server.enter_context(running_server(kept, port=address.port))

            with ClusterStore(QuotaAdmin(str(address), timeout_ms=20_000)) as store:
                yield Watched(store, put, failing)

    def test_what_a_client_changed_through_it_is_looked_for_at_once(
        self, watched: Watched, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No second is waited for."""
        monkeypatch.setattr("kquota.stores.cluster._LOOK_EVERY_MS", 3_600_000)
        store = watched.store
        assert isinstance(store, ClusterStore)
        with store.watch() as watch:
            assert next(watch).seen == {}
            store.alter([set_to(ALICE, producer_byte_rate=5)])
            assert next(watch).seen == {ALICE: {"producer_byte_rate": 5.0}}

    def test_the_same_answer_is_not_decoded_again(self, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
        """With many quotas that would take most of a processor."""
        watched.put({ALICE: {"producer_byte_rate": math.nan}})
        with watched.store.watch() as watch:
            first = next(watch).seen
            monkeypatch.delattr("kquota.admin.carried.read_response")
            watch.look_now()
            assert next(watch).seen is first

    def test_a_closed_client_says_so(self, watched: Watched) -> None:
        """Whoever still asks is not left waiting."""
        store = watched.store
        assert isinstance(store, ClusterStore)
        store.close()
        with pytest.raises(ConnectionFailedError, match="was closed"):
            store.describe(ClientQuotaFilter.all())
