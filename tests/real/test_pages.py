"""Pages of the documentation that need a Kafka, beside a real one: their commands and programs run as written.

The broker is at another address than on the page, and throttle times are those of the machine.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from examples.capture.broker import Broker
from examples.capture.processes import java_class
from tests.kit.kafka import NEW
from tools.run_page import ROOT, Command, Shell, opened_shell, run_page

AT = "localhost:9092"
"""Where the pages have a Kafka."""


@pytest.fixture
def shell(broker: Callable[[str], Broker]) -> Iterator[Shell]:
    """A shell with Kafka's own tool, as its distribution calls it."""
    one = broker(NEW)
    tool = shlex.join(java_class(one.jars, 256, ["-XX:TieredStopAtLevel=1"], "kafka.admin.ConfigCommand"))
    with opened_shell() as opened:
        _, code = opened.run(Command(f'export LC_ALL=C.UTF-8\nkafka-configs.sh() {{ {tool} "$@"; }}'))
        assert code == 0
        yield opened


def ran(name: str, shell: Shell, broker: Broker) -> tuple[str, str]:
    """The page, and what it is when it was run."""
    page = Path(ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    return page, run_page(page.replace(AT, broker.plaintext), shell).replace(broker.plaintext, AT)


def test_kafkas_own_tool_sets_quotas_at_the_server(shell: Shell, broker: Callable[[str], Broker]) -> None:
    page, found = ran("serve", shell, broker(NEW))
    assert found == page


def test_topics_are_created_at_the_pace_of_the_quota(shell: Shell, broker: Callable[[str], Broker]) -> None:
    one = broker(NEW)
    provisioner = ("--entity-type", "clients", "--entity-name", "provisioner")
    one.configs("--alter", *provisioner, "--add-config", "controller_mutation_rate=1")
    page, found = ran("topics", shell, one)
    one.configs("--alter", *provisioner, "--delete-config", "controller_mutation_rate")
    assert re.sub(r"in \d+ ms", "in some ms", found) == re.sub(r"in \d+ ms", "in some ms", page)


def test_the_gateway_limits_a_producer(shell: Shell, broker: Callable[[str], Broker]) -> None:
    one = broker(NEW)
    page, found = ran("gateway", shell, one)
    one.configs("--alter", "--entity-type", "clients", "--entity-name", "etl", "--delete-config", "producer_byte_rate")
    assert found == page
