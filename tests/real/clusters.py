"""What speaks Kafka's quota requests: a quota server of ours, and real brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from examples.capture.broker import Broker
from kquota.admin import QuotaAdmin
from kquota.policy import alterations, difference
from kquota.quotas import ClientQuotaFilter, QuotaSnapshot
from kquota.stores import open_store
from tests.kit.eventually import eventually
from tests.kit.quota_server import running_server

OURS: Final = "kquota"


@contextmanager
def cluster(name: str, broker: Callable[[str], Broker]) -> Iterator[str]:
    """The address of a quota server with an empty store, or of a real broker, whose quotas are removed at the end."""
    if name == OURS:
        with open_store("memory:") as store, running_server(store) as ours:
            yield str(ours)
        return
    address = broker(name).plaintext
    remove_all(address)
    try:
        yield address
    finally:
        remove_all(address)


def remove_all(address: str) -> None:
    """Remove every quota."""
    with QuotaAdmin(address) as admin:
        current = admin.describe_client_quotas(ClientQuotaFilter.all()).entities()
        if current:
            admin.alter_client_quotas(alterations(difference(current, {}, prune=True))).all()
            wait_for(address, {})


def wait_for(address: str, expected: QuotaSnapshot) -> None:
    """Until the cluster describes this: a broker learns what its controller did a moment after it was answered.

    :raises AssertionError: it never did.
    """
    with QuotaAdmin(address) as admin:
        eventually(lambda: admin.describe_client_quotas(ClientQuotaFilter.all()).entities(), expected)
