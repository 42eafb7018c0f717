"""What monitoring is told of a gateway, over sockets, by a client of its own."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kquota.config import BrokerConfig, ConnectionLimits
from kquota.errors import InputError, KquotaError, StoreError
from kquota.gateway.app import Gateway
from kquota.gateway.identity.connection_identity import Identities
from kquota.gateway.metrics.families import FAMILIES
from kquota.gateway.metrics.loop_lag import LoopLag
from kquota.gateway.metrics.operations import Operations, serve_operations
from kquota.gateway.metrics.readiness import check_brokers
from kquota.gateway.quotas.broker_quotas import BrokerQuotas
from kquota.gateway.quotas.enforcement import Client, Enforcement
from kquota.gateway.settings import GatewaySettings, load_gateway_settings
from kquota.metering.cluster import Cluster
from kquota.net.addresses import Address
from kquota.net.exposition import Exposition
from kquota.quotas import ClientQuotaEntity
from kquota.stores.feed import QuotaFeed
from kquota.wire.messages.metadata import MetadataRequestTopic, MetadataTopic
from tests.kit.charged import fetched, produced
from tests.kit.relayed import Relayed, fetch_request, produce_request, request
from tests.kit.virtual_loop import run_virtually

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
HOST = Address("127.0.0.1", 0)

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


class FakeFeed:
    def __init__(self) -> None:
        self.age = 5.0
        self.last_error: KquotaError | None = None
        self.changes = 3

    def age_ms(self) -> float:
        return self.age

    def is_stale(self) -> bool:
        return self.age > 10_000


class FakeUpstream:
    async def brokers(self) -> Iterable[tuple[int, str, int]]:
        return [(1, "127.0.0.1", 9), (2, "127.0.0.1", 9)]

    async def cluster(self) -> Cluster:
        raise AssertionError

    async def topics(self, asked: Sequence[MetadataRequestTopic]) -> Iterable[MetadataTopic]:
        raise AssertionError


class Parts:
    """A gateway, and what tells its quotas."""

    def __init__(self, *, is_shadow: bool = False, top_clients: int = 100) -> None:
        self.quotas = BrokerQuotas(BrokerConfig(), is_shadow=is_shadow)
        self.feed = FakeFeed()
        self.gateway = Gateway(
            FakeUpstream(),
            self.quotas,
            Identities(),
            listen=HOST,
            settings=GatewaySettings(metrics_top_clients=top_clients),
            limits=ConnectionLimits(),
        )
        self.quota_feed = cast("QuotaFeed", self.feed)
        self.operations = Operations(self.gateway, self.quota_feed)

    def limit(self, key: str, value: float, **entity: str | None) -> None:
        of = {name.replace("_", "-"): one for name, one in entity.items()}
        self.quotas.apply([(key, ClientQuotaEntity(of), value)])

    def scrape(self) -> Series:
        """At once, so that no time passes."""
        page = Exposition()
        for _ in self.operations._steps(page):
            pass
        return series(b"".join(page.parts()).decode())


def series(text: str) -> Series:
    found: Series = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


def value(found: Series, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(60):
            await scenario

    asyncio.run(in_time())


async def asked(address: Address, path: str, method: str = "GET") -> tuple[int, str, str]:
    def ask() -> tuple[int, str, str]:
        connection = http.client.HTTPConnection(address.host, address.port, timeout=30)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
        finally:
            connection.close()

    return await asyncio.to_thread(ask)


def now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


def use_everything(parts: Parts) -> None:
    """So that there is each series at least once."""
    for key in ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"):
        parts.limit(key, 1.0, user="alice")
    parts.limit("connection_creation_rate", 1.0, ip=None)
    alice, one = Client("alice", "etl"), parts.quotas.of(1)
    produced(one, alice, 10_000, now_ms())
    fetched(one, alice, 10_000, now_ms())
    one.managers.request.record("alice", "etl", 5.0, now_ms())
    controller = parts.quotas.controller
    throttle = controller.requests.mutate(*alice, [50.0], now_ms(), strict=False).throttle
    controller.complete_mutation(alice, throttle, now_ms())
    for _ in range(30):
        one.accept("PLAINTEXT", "10.0.0.7", now_ms())
    stats = parts.gateway.stats
    stats.closed["ProtocolError"] += 1
    stats.failed_dials[1] += 1
    stats.requests[0] += 5
    stats.logins["SCRAM-SHA-256", False] += 1


def test_health_readiness_and_metrics_over_a_socket() -> None:
    async def scenario() -> None:
        parts = Parts()
        async with serve_operations(parts.gateway, parts.quota_feed, HOST) as address:
            assert await asked(address, "/healthz") == (200, "text/plain; charset=utf-8", "ok\n")
            code, _, text = await asked(address, "/readyz")
            assert code == 503
            assert [json.loads(line)["ok"] for line in text.splitlines()] == [False, False, True]
            async with parts.gateway:
                code, kind, text = await asked(address, "/readyz")
                assert (code, kind) == (200, "application/jsonl; charset=utf-8")
                code, kind, text = await asked(address, "/metrics")
                assert (code, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
                found = series(text)
                assert value(found, "kquota_gateway_ready") == 1
                assert value(found, "kquota_gateway_brokers") == 2
                assert value(found, "kquota_gateway_connections", broker="bootstrap") == 0
                assert value(found, "process_open_fds") > 0
                assert await asked(address, "/metrics", "HEAD") == (200, kind, "")
                assert (await asked(address, "/other"))[0] == 404
                assert (await asked(address, "/metrics", "POST"))[0] == 405
            code, _, text = await asked(address, "/readyz")
            assert (code, json.loads(text.splitlines()[0])["reason"]) == (503, "the gateway is being stopped")

    run(scenario())


def test_a_port_that_is_taken_is_an_error_that_names_the_option() -> None:
    async def scenario() -> None:
        parts = Parts()
        async with serve_operations(parts.gateway, parts.quota_feed, HOST) as address:
            with pytest.raises(KquotaError, match=f"{address}.*`metrics`") as raised:
                async with serve_operations(parts.gateway, parts.quota_feed, address):
                    pass
            assert raised.value.exit_code == 1

    run(scenario())


def test_brokers_are_unready_after_three_times_their_age() -> None:
    assert check_brokers(14.9, 5_000).is_ok
    assert not check_brokers(15.1, 5_000).is_ok
    assert not check_brokers(None, 5_000).is_ok


def test_stale_quotas_are_shown_and_no_reason_to_be_unready() -> None:
    async def scenario() -> None:
        parts = Parts()
        async with parts.gateway:
            parts.feed.age, parts.feed.last_error = 60_000, StoreError("gone")
            answer = cast("Any", parts.operations.answer("/readyz"))
            lines = [json.loads(line) for line in answer.body.splitlines()]
            assert answer.status == 200
            assert lines[2]["stale"] is True
            assert "gone" in lines[2]["reason"]
            found = parts.scrape()
            assert value(found, "kquota_gateway_quotas_stale") == value(found, "kquota_gateway_quotas_failing") == 1
            assert value(found, "kquota_gateway_quotas_age_seconds") == 60
            parts.feed.age = float("inf")
            assert cast("Any", parts.operations.answer("/readyz")).status == 503

    run(scenario())


def test_what_is_declared_is_exported_and_nothing_else() -> None:
    async def scenario() -> None:
        parts = Parts()
        async with parts.gateway:
            use_everything(parts)
            text = (await parts.operations.metrics()).decode()
        exported = {
            family.name + "_total" * (family.type == "counter"): {
                one for found in family.samples for one in found.labels
            }
            for family in text_string_to_metric_families(text)
        }
        ours = {name: labels for name, labels in exported.items() if name.startswith("kquota_gateway_")}
        assert {one.name: set(one.labels) for one in FAMILIES} == ours
        page = PAGE.read_text(encoding="utf-8")
        section = page.split("## Of the gateway")[1].split("\n## ")[0]
        broker_s = [name for name in exported if name.startswith("kafka_server_")]
        assert broker_s
        assert [name for name in broker_s if f"`{name}`" not in page] == []
        queries = "".join(re.findall("```[^`]*```", section))
        asked_for = {
            name.removesuffix("_bucket") for name in re.findall(r"(?:kquota_gateway|kafka_server)_\w+", queries)
        }
        assert asked_for <= exported.keys()

    run(scenario())


@pytest.mark.parametrize("is_shadow", [False, True])
def test_throttles_are_exported_in_shadow_mode_as_well(is_shadow: bool) -> None:
    async def scenario() -> None:
        parts = Parts(is_shadow=is_shadow)
        use_everything(parts)
        found = parts.scrape()
        assert value(found, "kquota_gateway_shadow") == is_shadow
        rule = {"quota_type": "Produce", "rule": "user=alice"}
        assert value(found, "kquota_gateway_throttled_requests_total", **rule) == 1
        assert value(found, "kquota_gateway_throttle_seconds_total", **rule) > 1
        assert value(found, "kquota_gateway_throttled_clients", broker="1", quota_type="Produce") == 1
        alice = {"broker": "1", "user": "alice", "client_id": ""}
        assert value(found, "kafka_server_produce_byte_rate", **alice) == 1000
        assert value(found, "kafka_server_produce_throttle_time", **alice) > 1000
        assert value(found, "kafka_server_produce_quota_limit", **alice, limit_source="user=alice") == 1
        assert value(found, "kafka_server_produce_queue_size", broker="1") == (not is_shadow)
        assert value(found, "kquota_gateway_rule_usage", **rule) == 1000
        controller = {"broker": "controller", "user": "alice", "client_id": ""}
        assert value(found, "kafka_server_controllermutation_tokens", **controller) < 0

    run_virtually(scenario())


def test_requests_are_exported_by_the_name_of_their_api() -> None:
    async def scenario() -> None:
        parts = Parts()
        use_everything(parts)
        found = parts.scrape()
        assert value(found, "kquota_gateway_requests_total", api="Produce") == 5
        assert not [
            labels for name, labels in found if name == "kquota_gateway_requests_total" and ("api", "Fetch") in labels
        ]

    run_virtually(scenario())


def test_ten_thousand_clients_have_as_many_series_as_a_hundred() -> None:
    async def scenario() -> None:
        parts = Parts(top_clients=10)
        parts.limit("producer_byte_rate", 1e9, user=None)
        for number in range(10_000):
            produced(parts.quotas.of(1), Client(f"user-{number}", "c"), 10 * number, now_ms())
        found = parts.scrape()
        rates = {labels: one for (name, labels), one in found.items() if name == "kafka_server_produce_byte_rate"}
        assert len(rates) == 11
        largest = frozenset({"broker": "1", "user": "user-9999", "client_id": ""}.items())
        assert rates[largest] == 9999
        other = frozenset({"broker": "1", "user": "", "client_id": "", "other": "true"}.items())
        assert rates[other] == pytest.approx(sum(range(9990)))
        assert value(found, "kquota_gateway_clients", broker="1", quota_type="Produce") == 10_000
        assert value(found, "kquota_gateway_rule_usage", quota_type="Produce", rule="user=<default>") == pytest.approx(
            sum(range(10_000))
        )
        assert len(found) < 150

    run_virtually(scenario())


def test_who_asks_at_the_same_time_gets_the_same_text() -> None:
    async def scenario() -> None:
        parts = Parts()
        ask = cast("Callable[[str], Awaitable[Any]]", parts.operations.answer)
        first, second = await asyncio.gather(ask("/metrics"), ask("/metrics"))
        assert first.body is second.body
        assert (await ask("/metrics")).body is not first.body

    run(scenario())


def test_requests_under_way_and_throttled_connections() -> None:
    """As the relay counts them: whole requests, others and those that came in pieces, each of them once."""

    async def scenario() -> None:
        relayed = Relayed()
        relayed.limit("producer_byte_rate", 1000.0, client_id="c")
        await relayed.connect()
        relayed.client_sends(fetch_request(1, 1000), lambda: 3)
        relayed.client_sends(request(18, 2, 2, b"", "other"))
        assert not relayed.client.is_muted
        relayed.client_sends(b"")
        await relayed.settle()
        assert {key: count for key, count in enumerate(relayed.relay.stats.requests) if count} == {1: 1}
        assert len(relayed.client.expected) == 1
        relayed.close()

        other = Relayed()
        other.limit("producer_byte_rate", 1000.0, client_id="c")
        await other.connect()
        other.client_sends(request(18, 2, 2, b"", "c"))
        await other.settle()
        assert other.relay.stats.requests[18] == 1
        other.close()

        third = Relayed()
        third.limit("producer_byte_rate", 1000.0, client_id="c")
        await third.connect()
        third.client_sends(produce_request(1, bytes(30_000)) + produce_request(2, b""))
        assert third.client.is_muted
        third.client.count_requests()
        assert third.relay.stats.requests[0] == 1
        third.close()

    run_virtually(scenario())


def test_requests_of_connections_that_are_there_are_counted_where_they_are_looked_at() -> None:
    """A connection adds up its own, so that requests cost less."""

    class Served:
        def __init__(self, relayed: Relayed) -> None:
            self.connections = [relayed.client]
            self.count = 1

    async def scenario() -> None:
        relayed, parts = Relayed(), Parts()
        await relayed.connect()
        parts.gateway.stats = relayed.relay.stats
        parts.gateway._listeners[1] = cast("Any", Served(relayed))
        for number in range(3):
            relayed.client_sends(request(12, 3, number, b""))
            assert value(parts.scrape(), "kquota_gateway_requests_total", api="Heartbeat") == number + 1
        relayed.close()

    run_virtually(scenario())


def test_connections_to_brokers_that_outlive_their_clients_are_exported() -> None:
    async def scenario() -> None:
        relayed, parts = Relayed(), Parts()
        await relayed.connect()
        parts.gateway._relay = relayed.relay
        name = "kquota_gateway_closing_broker_connections"
        assert value(parts.scrape(), name) == 0
        assert relayed.broker is not None
        relayed.relay.closing_brokers.add(relayed.broker)
        assert value(parts.scrape(), name) == 1
        relayed.relay.closing_brokers.clear()
        relayed.close()

    run_virtually(scenario())


def test_a_rule_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parts_asked: list[str] = []

    async def scenario() -> None:
        parts = Parts()
        parts.limit("producer_byte_rate", 1.0, user=None)
        enforcement: Enforcement = parts.quotas.of(1)
        source = enforcement.managers.source

        def counted(*given: Any) -> str | None:
            parts_asked.append("asked")
            return source(*given)

        monkeypatch.setattr(enforcement.managers, "source", counted)
        for _ in range(5):
            produced(enforcement, Client("alice", "etl"), 1000, now_ms())
        parts.scrape()

    run_virtually(scenario())
    assert len(parts_asked) == 1


@pytest.mark.parametrize("text", ["0", "-1", "many", "10001", ""])
def test_a_number_of_clients_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="a whole number from 1 to 10000"):
        load_gateway_settings({"gateway.metrics.top.clients": text})


def test_the_number_of_clients_with_series_is_a_setting() -> None:
    assert load_gateway_settings({"gateway.metrics.top.clients": "7"}).metrics_top_clients == 7


def test_the_lag_of_the_loop_is_in_buckets_that_add_up() -> None:
    lag, page = LoopLag(), Exposition()
    for late_s in (-0.0004, 0.0002, 0.001, 0.03, 7.0):
        lag.note(late_s)
    lag.write(page)
    found = series(b"".join(page.parts()).decode())
    name = "kquota_gateway_event_loop_lag_seconds"
    buckets = {bound: value(found, f"{name}_bucket", le=bound) for bound in ("0.001", "0.025", "0.05", "1.0", "+Inf")}
    assert buckets == {"0.001": 3, "0.025": 3, "0.05": 4, "1.0": 4, "+Inf": 5}
    assert value(found, f"{name}_count") == 5
    assert value(found, f"{name}_sum") == pytest.approx(7.0312)
