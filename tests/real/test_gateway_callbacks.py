"""A callback at the gateway that goes by who leads what: it is fed with the topology that the gateway follows."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kquota.admin import NewTopic, QuotaAdmin
from tests.kit.eventually import eventually
from tests.kit.kafka import PASSWORDS
from tests.kit.kafka_cluster import KafkaCluster
from tests.real.gateways import client_ids, gateway, in_force, throttle_ms

SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
LIMIT: Final = 30_000
"""Bytes per second of a tenant, in the whole cluster."""
BATCH: Final = 300_000


def test_the_limits_of_brokers_follow_their_partitions(three_brokers: KafkaCluster, tmp_path: Path) -> None:
    """Broker 1 leads two of a tenant's three partitions, and has two thirds of its limit; then broker 2 has them."""
    [tenant] = client_ids("tenant")
    topic = f"{tenant}_orders"
    quotas = tmp_path / "quotas.yaml"
    quotas.write_text(
        f"quotas:\n- entity: {{user: {tenant}_}}\n  values: {{producer_byte_rate: {LIMIT}}}\n", encoding="utf-8"
    )
    config = tmp_path / "client.properties"
    jaas = f'{SCRAM} required username="bob" password="{PASSWORDS["bob"]}";'
    config.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={jaas}\n", encoding="utf-8"
    )
    settings = ("-D", "client.quota.callback.class=partitions", "-D", "gateway.metadata.max.age.ms=500")
    placed = {0: [1, 2, 3], 1: [1, 2, 3], 2: [2, 3, 1]}
    with QuotaAdmin(three_brokers.bootstrap(), timeout_ms=30_000) as admin:
        admin.topics.create_topics([NewTopic(topic, replicas_assignments=placed)]).all()
        eventually(lambda: three_brokers.leaders(topic), {0: 1, 1: 1, 2: 2})
        upstream = three_brokers.bootstrap("SASL_PLAINTEXT")
        with gateway(
            upstream, tmp_path, "--command-config", str(config), *settings, quotas=quotas, brokers=3
        ) as running:

            def seconds(broker: int, batch_bytes: int) -> int:
                wait = throttle_ms(running.brokers[broker], topic, "any", batch_bytes=batch_bytes, user=f"{tenant}_a")
                return round(wait / 1000)

            assert seconds(1, BATCH) == 5
            three_brokers.move_leaders(topic)
            assert three_brokers.leaders(topic) == {0: 2, 1: 2, 2: 3}
            # With the third of the limit that it had before, it would wait for 20 s.
            seconds(2, BATCH)
            in_force(lambda: seconds(2, 100) <= 5)
            assert seconds(2, 100) >= 1
        admin.topics.delete_topics([topic]).all()
