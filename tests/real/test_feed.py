"""A change that Kafka's own tool makes reaches quota managers, by following the brokers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial

import pytest

from examples.capture.broker import Broker
from examples.capture.jars import UTF8_ENVIRONMENT
from kquota.admin import QuotaAdmin
from kquota.config import BrokerConfig
from kquota.metering.engine import QuotaManagers
from kquota.quotas import IP, USER, ClientQuotaEntity
from kquota.stores import QuotaFeed
from kquota.stores.cluster import ClusterStore
from kquota.stores.feed import Change
from tests.kit.eventually import eventually
from tests.kit.kafka import NEW, OLD
from tests.kit.line_program import java_command

FOLLOWED = ClientQuotaEntity({USER: "followed"})
ADDRESS = ClientQuotaEntity({IP: "10.9.8.7"})


def altered(broker: Broker, *arguments: str) -> None:
    command = java_command(
        broker.jars, "kafka.admin.ConfigCommand", "--bootstrap-server", broker.plaintext, "--alter", *arguments
    )
    subprocess.run(command, capture_output=True, env=UTF8_ENVIRONMENT, check=True)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_change_is_in_force_two_looks_later(broker: Callable[[str], Broker], version: str) -> None:
    """At the latest: one look may be under way when the tool ends, and the next comes a second after it."""
    running = broker(version)
    managers = QuotaManagers(BrokerConfig())
    applied: dict[Change, int] = {}

    with ClusterStore(QuotaAdmin(running.plaintext, timeout_ms=30_000)) as store:
        feed = QuotaFeed(store)

        def apply(changes: list[Change]) -> None:
            for key, entity, value in changes:
                managers.update_quota(key, entity, value)
                applied[key, entity, value] = feed.looks

        feed.drive(apply)
        with feed:
            user = ("--entity-type", "users", "--entity-name", "followed")
            address = ("--entity-type", "ips", "--entity-name", "10.9.8.7")
            for arguments, change in (
                ((*user, "--add-config", "producer_byte_rate=5000"), ("producer_byte_rate", FOLLOWED, 5000.0)),
                ((*user, "--add-config", "producer_byte_rate=6000"), ("producer_byte_rate", FOLLOWED, 6000.0)),
                ((*address, "--add-config", "connection_creation_rate=7"), ("connection_creation_rate", ADDRESS, 7.0)),
                ((*user, "--delete-config", "producer_byte_rate"), ("producer_byte_rate", FOLLOWED, None)),
                (
                    (*address, "--delete-config", "connection_creation_rate"),
                    ("connection_creation_rate", ADDRESS, None),
                ),
            ):
                altered(running, *arguments)
                looks = feed.looks
                eventually(partial(applied.__contains__, change), expected=True)
                assert applied[change] <= looks + 2
            assert feed.last_error is None
            assert managers.connections.limit("10.9.8.7") == managers.connections.limit("10.9.8.8")
