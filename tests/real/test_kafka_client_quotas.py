"""``kafka-client-quotas`` prints what KIP-546 shows, byte for byte, from our server and from a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from examples.capture.broker import Broker
from kquota.admin import QuotaAdmin
from kquota.cli.kafka_client_quotas import run
from kquota.policy import alterations, difference
from kquota.quotas import ClientQuotaEntity, ClientQuotaFilter
from tests.kit.kafka import NEW
from tests.real.clusters import OURS, cluster, wait_for

Values = Mapping[str, float]


@pytest.fixture(params=[OURS, NEW], scope="module")
def address(request: pytest.FixtureRequest, broker: Callable[[str], Broker]) -> Iterator[str]:
    with cluster(request.param, broker) as found:
        yield found


@pytest.fixture
def tool(address: str, capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., str]:
    """Runs the tool with these arguments; its standard output."""

    def run_tool(*arguments: str) -> str:
        capfdbinary.readouterr()
        code = run(["--bootstrap-server", address, *arguments])
        captured = capfdbinary.readouterr()
        assert (code, captured.err) == (0, b"")
        return captured.out.decode()

    return run_tool


def entity(text: str) -> ClientQuotaEntity:
    return ClientQuotaEntity.from_text(text)


def given(address: str, quotas: Mapping[str, Values]) -> None:
    """Set these quotas, and no others."""
    wanted = {entity(text): dict(values) for text, values in quotas.items()}
    with QuotaAdmin(address) as admin:
        current = admin.describe_client_quotas(ClientQuotaFilter.all()).entities()
        admin.alter_client_quotas(alterations(difference(current, wanted, prune=True))).all()
    wait_for(address, wanted)


KIP_546 = {
    "user=user-two,client-id=my-client": {"producer_byte_rate": 2000000.0},
    "user=<default>,client-id=my-client": {"producer_byte_rate": 500000.0, "consumer_byte_rate": 1000000.0},
    "user=user-one,client-id=my-client": {"producer_byte_rate": 1000000.0, "consumer_byte_rate": 4000000.0},
}
DESCRIBED = """\
{user=user-one, client-id=my-client}
consumer_byte_rate=4000000
producer_byte_rate=1000000

{user=user-two, client-id=my-client}
producer_byte_rate=2000000

{user=<default>, client-id=my-client}
consumer_byte_rate=1000000
producer_byte_rate=500000
"""


def test_describe_as_in_the_kip(address: str, tool: Callable[..., str]) -> None:
    """Named users by code point, the default last; other client-ids are not asked for."""
    given(address, {**KIP_546, "client-id=other": {"producer_byte_rate": 1e12}})
    assert tool("--describe", "--names=client-id=my-client") == DESCRIBED


def test_list_and_prefix_as_in_the_draft(address: str, tool: Callable[..., str]) -> None:
    """``--list`` was the draft's word for it. A default has no name that could begin with anything."""
    given(address, KIP_546)
    assert tool("--list", "--names=client-id=my-client") == DESCRIBED
    assert tool("--list", "--prefix=user=user-") == DESCRIBED[: DESCRIBED.index("\n{user=<default>")]
    assert tool("--describe", "--prefix=user=user-t", "--names=client-id=my-client") == (
        "{user=user-two, client-id=my-client}\nproducer_byte_rate=2000000\n"
    )
    assert tool("--describe", "--prefix=user=USER-") == ""


def test_resolve_as_in_the_kip(address: str, tool: Callable[..., str]) -> None:
    """On quotas that lead to what the KIP prints."""
    given(
        address,
        {
            "user=user-two,client-id=my-client": {"consumer_byte_rate": 2000000.0},
            "user=<default>,client-id=my-client": {"producer_byte_rate": 500000.0},
        },
    )
    assert tool("--resolve", "--names=user=user-two,client-id=my-client") == (
        "consumer_byte_rate=2000000 {user=user-two, client-id=my-client}\n"
        "producer_byte_rate=500000 {user=<default>, client-id=my-client}\n"
    )


def test_resolve_follows_the_rule_where_the_kip_contradicts_itself(address: str, tool: Callable[..., str]) -> None:
    """Under the quotas of its own describe example, user-two has a producer rate of its own, and that binds."""
    given(address, KIP_546)
    assert tool("--resolve", "--names=user=user-two,client-id=my-client") == (
        "consumer_byte_rate=1000000 {user=<default>, client-id=my-client}\n"
        "producer_byte_rate=2000000 {user=user-two, client-id=my-client}\n"
    )


def test_show_overridden_as_in_the_draft(address: str, tool: Callable[..., str]) -> None:
    """Each overridden value below its winner, marked, in order of precedence."""
    given(address, {**KIP_546, "client-id=<default>": {"producer_byte_rate": 1e12}})
    assert tool("--resolve", "--names=user=user-two,client-id=my-client", "--show-overridden") == (
        "consumer_byte_rate=1000000 {user=<default>, client-id=my-client}\n"
        "producer_byte_rate=2000000 {user=user-two, client-id=my-client}\n"
        "*producer_byte_rate=500000 {user=<default>, client-id=my-client}\n"
        "*producer_byte_rate=1000000000000 {client-id=<default>}\n"
    )
    assert tool("--resolve", "--names=user=nobody") == ""


def test_static_defaults_can_be_given(address: str, tool: Callable[..., str]) -> None:
    """No request asks a cluster for them. They bind who has no other rule, and stand below all others."""
    given(address, KIP_546)
    static = ("-D", "quota.producer.default=77", "--resolve")
    assert tool(*static, "--names=user=user-two,client-id=other") == "producer_byte_rate=77 static\n"
    assert tool(*static, "--names=user=user-two,client-id=my-client", "--show-overridden") == (
        "consumer_byte_rate=1000000 {user=<default>, client-id=my-client}\n"
        "producer_byte_rate=2000000 {user=user-two, client-id=my-client}\n"
        "*producer_byte_rate=500000 {user=<default>, client-id=my-client}\n"
        "*producer_byte_rate=77 static\n"
    )


def test_alter_as_in_the_kip(address: str, tool: Callable[..., str]) -> None:
    """Nothing is printed on success; validating changes nothing."""
    given(address, {"user=<default>,client-id=my-client": {"producer_byte_rate": 500000.0}})
    values = ("--add=consumer_byte_rate=2000000", "--delete=producer_byte_rate")
    change = ("--alter", "--names=client-id=my-client", "--defaults=user", *values)
    asked = ("--describe", "--names=client-id=my-client", "--defaults=user")
    assert tool(*change, "--validate-only") == ""
    assert tool(*asked) == "{user=<default>, client-id=my-client}\nproducer_byte_rate=500000\n"
    assert tool(*change) == ""
    wait_for(address, {entity("user=<default>,client-id=my-client"): {"consumer_byte_rate": 2000000.0}})
    assert tool(*asked) == "{user=<default>, client-id=my-client}\nconsumer_byte_rate=2000000\n"


def test_names_are_opaque(address: str, tool: Callable[..., str]) -> None:
    """Commas, equals signs, a user called <default>, fractions: in by escapes, out sanitized."""
    given(address, {})
    for names, values in (
        (r"user=CN=a\,OU=b\\c,client-id=x=y", "request_percentage=12.5"),
        ("user=<default>", "controller_mutation_rate=0.001,request_percentage=1e-7"),
        ("user=\u00e9 *~", "producer_byte_rate=9007199254740993,request_percentage=1e22"),
    ):
        assert tool("--alter", f"--names={names}", f"--add={values}") == ""
    wait_for(
        address,
        {
            ClientQuotaEntity({"user": r"CN=a,OU=b\c", "client-id": "x=y"}): {"request_percentage": 12.5},
            ClientQuotaEntity({"user": "<default>"}): {"controller_mutation_rate": 0.001, "request_percentage": 1e-7},
            ClientQuotaEntity({"user": "\u00e9 *~"}): {"producer_byte_rate": 2.0**53, "request_percentage": 1e22},
        },
    )
    assert tool("--describe") == (
        "{user=%3Cdefault%3E}\ncontroller_mutation_rate=0.001\nrequest_percentage=0.0000001\n\n"
        "{user=CN%3Da%2COU%3Db%5Cc, client-id=x%3Dy}\nrequest_percentage=12.5\n\n"
        "{user=%C3%A9%20%2A%7E}\nproducer_byte_rate=9007199254740992\nrequest_percentage=10000000000000000000000\n"
    )


def test_what_the_broker_refuses_is_said(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    """In its own words, with exit code 1."""
    given(address, {})
    refused = run(["--bootstrap-server", address, "--alter", "--names=user=a", "--add=producer_byte_rate=-1"])
    assert refused == 1
    out, err = capfd.readouterr()
    assert (out, err) == (
        "",
        "kafka-client-quotas: error: INVALID_REQUEST: Quota producer_byte_rate must be greater than 0\n",
    )
