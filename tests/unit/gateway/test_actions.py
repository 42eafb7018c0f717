"""The table of actions: it is what the schemas say, and covers what brokers offer to clients."""

import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.schemas.load_json import load_json

from kquota.gateway.relay.actions import ACTIONS, Action, Kind
from kquota.wire.apis import APIS, TOPIC_APIS
from tests.kit.actions import api_number, known_action
from tests.kit.kio_entities import entity_class, is_known, least, response_frame

ROOT = Path(__file__).parents[3]
BY_NAME = [pytest.param(action, id=f"{action.name}-v{action.version}") for action in ACTIONS.values()]
KNOWN = [one for one in BY_NAME if is_known(one.values[0].api_key, one.values[0].version)]  # type: ignore[union-attr]

# What brokers advertise of what only brokers and controllers send, and ShareFetch and ShareAcknowledge.
NOT_FOR_CLIENTS = {4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 78, 79, 82, 83, 84, 85, 86, 87}


def test_the_table_is_what_its_tool_writes() -> None:
    """Where this fails: `python tools/action_table.py`."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "action_table.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "action_table.py is up to date\n"), done.stderr


@pytest.mark.parametrize("action", KNOWN)
def test_headers_and_throttle_times_are_where_kio_writes_them(action: Action) -> None:
    request = entity_class(action.api_key, action.version, "request")
    response = entity_class(action.api_key, action.version, "response")
    assert request.__name__ == action.name + "Request"
    assert action.is_flexible == request.__flexible__ == response.__flexible__
    assert action.has_tagged_header == response.__header_schema__.__flexible__
    assert action.body_at == 8 + action.has_tagged_header
    times = {"throttle_time": datetime.timedelta(milliseconds=0x01020304)}
    frame = response_frame(least(response, **(times if action.has_throttle else {})))
    assert frame.count(b"\1\2\3\4") == action.has_throttle
    if action.throttle_at is not None:
        assert frame.index(b"\1\2\3\4") == action.throttle_at
    elif action.has_throttle:
        assert action.name in ("Produce", "ApiVersions") or action.name.endswith("DelegationToken")


def _schema(name: str) -> dict[str, Any] | None:
    try:
        return dict(load_json(name))
    except (FileNotFoundError, ValueError):
        return None


def test_versions_that_kafka_removed_agree_with_what_its_definitions_say_of_them() -> None:
    """kafka-python carries those, with the version that each field came with, also where it is not valid any more."""
    seen = set()
    for action in ACTIONS.values():
        response = _schema(action.name + "Response")
        if response is None:
            continue
        seen.add(action.name)
        assert response["apiKey"] == action.api_key
        flexible = response["flexibleVersions"]
        assert action.is_flexible == (flexible != "none" and action.version >= int(flexible.removesuffix("+")))
        since = [field["versions"] for field in response["fields"] if field["name"] == "ThrottleTimeMs"]
        assert action.has_throttle == (bool(since) and action.version >= int(since[0].removesuffix("+")))
    assert {"Produce", "Fetch", "OffsetCommit", "CreateTopics", "DescribeLogDirs"} <= seen


def test_what_the_gateway_has_to_touch_is_known_as_that() -> None:
    kinds = {kind: {action.name for action in ACTIONS.values() if action.kind is kind} for kind in Kind}
    assert kinds[Kind.PRODUCE] == {"Produce"}
    assert kinds[Kind.FETCH] == {"Fetch"}
    assert kinds[Kind.SASL_HANDSHAKE] == {"SaslHandshake"}
    assert kinds[Kind.SASL_AUTHENTICATE] == {"SaslAuthenticate"}
    assert kinds[Kind.API_VERSIONS] == {"ApiVersions"}
    assert kinds[Kind.BROKERS] == {"Metadata", "DescribeCluster"}
    assert kinds[Kind.COORDINATOR] == {"FindCoordinator"}
    assert kinds[Kind.MUTATION] == {"CreateTopics", "DeleteTopics", "CreatePartitions"}
    assert kinds[Kind.QUOTAS] == {
        "DescribeClientQuotas",
        "AlterClientQuotas",
        "DescribeUserScramCredentials",
        "ResolveQuotas",
    }
    assert len(kinds[Kind.PASS]) > 40


@pytest.mark.parametrize("api", [*APIS.values(), *TOPIC_APIS], ids=lambda api: api.name)
def test_it_agrees_with_the_apis_that_kquota_speaks_itself(api: Any) -> None:
    for version in range(api.min_version, api.max_version + 1):
        action = known_action(api.key, version)
        assert (action.name, action.is_flexible) == (api.name, api.is_flexible(version))
        assert action.has_tagged_header == api.has_tagged_response_header(version)


@pytest.mark.parametrize(("api_key", "version"), [(1, 16), (1, -1), (4, 0), (78, 1), (79, 1), (0, 14), (-1, 0)])
def test_what_is_not_forwarded(api_key: int, version: int) -> None:
    assert api_number(api_key, version) not in ACTIONS


@pytest.mark.parametrize("release", ["2.8.2", "3.9.1", "4.3.0"])
def test_all_that_brokers_offer_to_clients_is_there(release: str) -> None:
    """As real brokers answered to ApiVersions, in every version that the gateway's clients could want."""
    offered: dict[int, tuple[int, int]] = {}
    log = (ROOT / "tests" / "data" / "golden" / release / "kafka-request.log").read_text(encoding="utf-8")
    for line in log.split("\n"):
        if '"API_VERSIONS"' in line:
            entry, _ = json.JSONDecoder().raw_decode(line, line.index("{"))
            offered |= {one["apiKey"]: (one["minVersion"], one["maxVersion"]) for one in entry["response"]["apiKeys"]}
    assert {1, 18, 19} <= offered.keys()
    fetch_with_addresses = {(1, version) for version in range(16, offered[1][1] + 1)}
    assert fetch_with_addresses == {
        (key, version)
        for key, (first, last) in offered.items()
        for version in range(first, last + 1)
        if key not in NOT_FOR_CLIENTS and api_number(key, version) not in ACTIONS
    }
