"""What Java calls the subject of a certificate, and what Kafka's rules make of it, is what ours do."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

from kquota.errors import InputError, ProtocolError
from kquota.net.principals import PrincipalRules, distinguished_name
from tests.kit.kafka import NEW, needs_compiler, needs_kafka
from tests.kit.principals import certificate_of, principal_judge, random_name, random_rules

NAMES = 2_000
RULES = 2_000


def test_names_are_those_of_java(tmp_path: Path) -> None:
    jars = needs_kafka(NEW)
    needs_compiler()
    random = Random(1)
    compared = 0
    with principal_judge(jars, tmp_path / "errors") as judge:
        for _ in range(NAMES):
            der = random_name(random)
            java = judge.ask({"der": der.hex(), "rules": "DEFAULT"})
            if (
                "error" in java
            ):  # a name that Java does not read, such as a text with bytes that it has no characters for
                continue
            assert distinguished_name(certificate_of(der)) == java["name"], der.hex()
            compared += 1
    assert compared > NAMES // 2


def test_rules_are_those_of_kafka(tmp_path: Path) -> None:
    """A rule that refers to a group that is not there is refused at once: Kafka throws when it is first used."""
    jars = needs_kafka(NEW)
    needs_compiler()
    random = Random(2)
    outcomes: Counter[str] = Counter()
    with principal_judge(jars, tmp_path / "errors") as judge:
        for _ in range(RULES):
            # Java goes on in the middle of a character that it keeps as two.
            name = distinguished_name(certificate_of(random_name(random))).replace("\U0001f600", "")
            rules = random_rules(random)
            kafka = judge.ask({"name": name, "rules": rules})
            error = kafka.get("error")
            try:
                ours = PrincipalRules.parse(rules).principal(name)
            except InputError as refused:
                if "no group" in str(refused):
                    outcomes["refused before it is used"] += error is None or error == "NoMatchingRule"
                else:
                    assert error in ("IllegalArgumentException", "PatternSyntaxException"), (rules, name, kafka)
                outcomes["refused"] += 1
            except ProtocolError:
                assert error == "NoMatchingRule", (rules, name, kafka)
                outcomes["no rule"] += 1
            else:
                assert kafka.get("principal") == ours, (rules, name, kafka, ours)
                outcomes["mapped"] += ours != name
    assert outcomes["mapped"] > RULES // 10
    assert outcomes["no rule"] > RULES // 20
    assert outcomes["refused before it is used"] < outcomes["refused"] // 2
