"""The series that Prometheus is given, read back by its own client's parser."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kquota.cli import run
from kquota.config import BrokerConfig
from kquota.metering.callback import ClientQuotaType, DefaultQuotaCallback
from kquota.metering.engine import QuotaManagers
from kquota.net.prometheus import QuotaCollector, exposition
from kquota.quotas import ClientQuotaEntity

NOW = 1_700_000_000_000
PRODUCE = "producer_byte_rate"

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def series(text: str) -> Series:
    """Each with its labels; none appears twice, and all are gauges with a description."""
    found: Series = {}
    for family in text_string_to_metric_families(text):
        assert (family.type, bool(family.documentation)) == ("gauge", True)
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


def value(found: Series, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def managers_of(*quotas: tuple[str, Mapping[str, str | None], float]) -> QuotaManagers:
    managers = QuotaManagers(BrokerConfig())
    for key, on, limit in quotas:
        managers.update_quota(key, ClientQuotaEntity(on), limit)
    return managers


def read(managers: QuotaManagers) -> Series:
    return series(exposition(managers, NOW).decode())


def test_usage_and_limit_have_the_same_labels() -> None:
    managers = managers_of((PRODUCE, {"user": "alice", "client-id": None}, 1000))
    managers.produce.record("alice", "etl", 25_000, NOW)
    found = read(managers)
    client = {"user": "alice", "client_id": "etl"}
    assert value(found, "kafka_server_produce_byte_rate", **client) == 2500
    assert math.isnan(value(found, "kafka_server_produce_throttle_time", **client))
    source = "user=alice,client-id=<default>"
    assert value(found, "kafka_server_produce_quota_limit", **client, limit_source=source) == 1000


def test_the_names_are_those_that_exporters_of_brokers_use() -> None:
    """As jmx-monitoring-stacks and Strimzi's reporter write them; `docs/metrics.md` lists them all."""
    entity = {"user": "alice"}
    keys = [one.key for one in ClientQuotaType]
    managers = managers_of(*((key, entity, 10) for key in keys), ("connection_creation_rate", {"ip": None}, 5))
    for manager in (managers.produce, managers.fetch, managers.request):
        manager.record("alice", "c", 1, NOW)
    managers.controller_mutation.get_or_create_meter("alice", "c").record(1, NOW)
    managers.connections.accept("PLAINTEXT", "::1", NOW)
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    names = {name for name, _ in read(managers)}
    assert {name.removeprefix("kafka_server_") for name in names} == {
        *(f"{group}_queue_size" for group in ("produce", "fetch", "request", "controllermutation")),
        *(f"{group}_throttle_time" for group in ("produce", "fetch", "request", "controllermutation")),
        *(f"{group}_quota_limit" for group in ("produce", "fetch", "request", "controllermutation")),
        *("produce_byte_rate", "fetch_byte_rate", "request_request_time", "request_exempt_request_time"),
        *("controllermutation_tokens", "controllermutation_mutation_rate"),
        "socket_server_metrics_connection_accept_rate",
        "socket_server_metrics_broker_connection_accept_rate",
        "socket_server_metrics_connection_accept_throttle_time",
        "socket_server_metrics_ip_connection_accept_throttle_time",
        "socket_server_metrics_quota_limit",
    }
    assert [name for name in names if f"`{name}" not in page] == []


def test_listeners_and_addresses() -> None:
    managers = managers_of(("connection_creation_rate", {"ip": None}, 5))
    managers.connections.accept("TLS", "::1", NOW)
    found = read(managers)
    prefix, address = "kafka_server_socket_server_metrics", "0:0:0:0:0:0:0:1"
    assert value(found, f"{prefix}_broker_connection_accept_rate") == 0.1
    assert value(found, f"{prefix}_connection_accept_rate", listener="TLS", ip="") == 0.1
    assert value(found, f"{prefix}_connection_accept_rate", listener="", ip=address) == 0.1
    assert value(found, f"{prefix}_quota_limit", listener="", ip=address, limit_source="ip=<default>") == 5


@pytest.mark.parametrize("client_id", ['"', "\\", "a\nb", "日本", "{}", "x" * 300, "\\n"])
def test_any_client_id_comes_back_as_it_was(client_id: str) -> None:
    managers = managers_of((PRODUCE, {"user": None, "client-id": None}, 10))
    managers.produce.record("O=A,CN=b", client_id, 10, NOW)
    found = read(managers)
    assert value(found, "kafka_server_produce_byte_rate", user="O%3DA%2CCN%3Db", client_id=client_id) == 1


@pytest.mark.parametrize(
    ("tags", "labels"),
    [
        ({"group": "payments"}, {"user": "", "client_id": "", "group": "payments"}),
        ({"client_id": "a", "client-id": "b"}, {"user": "", "client_id": "a", "client_id_": "b"}),
        ({"quota.type": "P", "1st": "x"}, {"user": "", "client_id": "", "quota_type": "P", "tag_1st": "x"}),
        ({"limit_source": "x", "__name__": "y", "": "z"}, {
            "user": "", "client_id": "", "tag_limit_source": "x", "tag___name__": "y", "tag_": "z",
        }),
    ],
)  # fmt: skip
def test_any_tags_of_a_callback_become_labels(tags: dict[str, str], labels: dict[str, str]) -> None:
    class Odd(DefaultQuotaCallback):
        def quota_metric_tags(self, quota_type: ClientQuotaType, principal: Any, client_id: str) -> Mapping[str, str]:
            return tags

        def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float:
            return 5.0

    managers = managers_of()
    managers.swap_callback(Odd(), {})
    managers.produce.record("alice", "c", 10, NOW)
    found = read(managers)
    assert value(found, "kafka_server_produce_byte_rate", **labels) == 1
    assert value(found, "kafka_server_produce_quota_limit", **labels, limit_source="callback") == 5


def test_a_registered_collector_reads_at_each_scrape() -> None:
    """And not when it is registered, as a registry that wants descriptions would have it."""
    managers = managers_of((PRODUCE, {"user": "alice"}, 10))
    times = iter((NOW, NOW + 20_000))
    registry = CollectorRegistry(auto_describe=True)
    registry.register(QuotaCollector(managers, lambda: next(times)))
    managers.produce.record("alice", "c", 10, NOW)
    scrapes = [series(generate_latest(registry).decode()) for _ in range(2)]
    rates = [value(one, "kafka_server_produce_byte_rate", user="alice", client_id="") for one in scrapes]
    assert rates == [1, 0]


class TestCommand:
    """``kquota engine replay --metrics``"""

    TRACE = (
        {"op": "quota", "entity": {"user": "alice"}, "key": PRODUCE, "value": 1000},
        {"op": "record", "t_ms": NOW, "user": "alice", "client-id": "c", "key": PRODUCE, "value": 25_000},
        {"op": "time", "t_ms": NOW + 5000},
    )

    @pytest.fixture
    def trace(self, tmp_path: Path) -> Path:
        path = tmp_path / "trace.jsonl"
        path.write_text("\n".join(map(json.dumps, self.TRACE)))
        return path

    def test_metrics_are_those_at_the_trace_s_last_time(
        self, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "replay.prom"
        assert run(["engine", "replay", str(trace), "--metrics", str(file)]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 1
        found = series(file.read_text())
        # Of its 15 s the client has waited for 5.
        assert value(found, "kafka_server_produce_byte_rate", user="alice", client_id="") == 2500
        assert value(found, "kafka_server_produce_throttle_time", user="alice", client_id="") == 15_000
        assert value(found, "kafka_server_produce_queue_size") == 1

    def test_a_trace_without_times_has_the_broker_s_own_metrics(self, tmp_path: Path) -> None:
        empty, file = tmp_path / "empty", tmp_path / "replay.prom"
        empty.touch()
        assert run(["engine", "replay", str(empty), "--metrics", str(file)]) == 0
        assert value(series(file.read_text()), "kafka_server_request_exempt_request_time") == 0

    @pytest.mark.parametrize(
        ("target", "reason"),
        [("-", "the answers are written to standard output"), ("missing/file", "cannot write the metrics")],
    )
    def test_metrics_that_cannot_be_written_are_an_error(
        self, target: str, reason: str, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = target if target == "-" else str(tmp_path / target)
        assert run(["engine", "replay", str(trace), "--metrics", path]) == 2
        assert reason in capsys.readouterr().err

    def test_without_the_library_the_error_says_what_to_install(
        self, trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.delitem(sys.modules, "kquota.net.prometheus")
        monkeypatch.setitem(sys.modules, "prometheus_client", None)
        assert run(["engine", "replay", str(trace), "--metrics", "x"]) == 1
        found = capsys.readouterr()
        assert "prometheus_client is not installed: pip install 'kquota[server]'" in found.err
        assert found.out == ""
