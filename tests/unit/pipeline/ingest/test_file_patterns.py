"""Which files a pattern stands for, and the broker of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kquota.errors import InputError
from kquota.pipeline.ingest.file_patterns import matching_files
from kquota.pipeline.ingest.metrics.metric_files import MetricInputs, find_metric_files
from kquota.pipeline.ingest.request_log.log_files import find_log_files

PATHS = (
    "logs/broker-1/kafka-request.log",
    "logs/broker-1/kafka-request.log.2026-01-02-03",
    "logs/broker-12/kafka-request.log",
    "logs/broker-12/old/kafka-request.log.gz",
    "logs/broker-3-spare/kafka-request.log",
    "logs/broker-x/kafka-request.log",
    "logs/dc2-kafka-7.log",
    "logs/[7]/007.log",
)


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"{path}\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("logs/broker-{broker}/*", [(1, 0), (1, 1), (12, 2)]),
        ("logs/broker-{broker}/**/*.gz", [(12, 3)]),
        ("logs/**/broker-{broker}/**/kafka-request.log*", [(1, 0), (1, 1), (12, 2), (12, 3)]),
        ("**/broker-{broker}/kafka-request.log", [(1, 0), (12, 2)]),
        ("logs/broker-{broker}*/kafka-request.log", [(1, 0), (12, 2), (3, 4)]),
        ("logs/dc?-[!a]afka-{broker}.log", [(7, 6)]),
        ("logs/[[]{broker}[]]/00{broker}.log", []),
        ("logs/[[]{broker}[]]/*.log", [(7, 7)]),
        ("logs/[[]7[]]/{broker}.log", [(7, 7)]),
        ("logs/broker-{broker}/{broker}.log", []),
        ("logs/nobody-{broker}/*", []),
        ("5=logs/broker-1/*.log", [(5, 0)]),
        ("logs/broker-1/*.log", [(None, 0)]),
    ],
)
def test_the_broker_is_a_number_in_the_path(pattern: str, expected: Sequence[tuple[int | None, int]]) -> None:
    found = [(broker, Path(file.path).relative_to(Path.cwd())) for file, broker in matching_files(pattern)]
    assert found == [(broker, Path(PATHS[place])) for broker, place in expected]


def test_the_same_number_may_stand_in_a_path_twice(tmp_path: Path) -> None:
    for folder, file in ((1, 1), (1, 2), (2, 2)):
        path = tmp_path / f"twice/{folder}/kafka-{file}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = [(broker, file.name) for file, broker in matching_files(f"{tmp_path}/twice/{{broker}}/*-{{broker}}.log")]
    assert found == [(1, "kafka-1.log"), (2, "kafka-2.log")]


def test_a_file_whose_name_has_braces_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "a-{broker}.log").touch()
    [(file, broker)] = matching_files("a-{broker}.log")
    assert (file.path, broker) == (str(tmp_path / "a-{broker}.log"), None)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("logs/*{broker}*", r"the broker of logs/dc2-kafka-7.log may be 2 or 7: write more of the path"),
        ("1=logs/broker-{broker}/*", r"give the broker by N= or by \{broker\}, not by both"),
        ("2147483648=logs/broker-1/*", r"2147483648 is no broker's id: the highest is 2147483647"),
    ],
)
def test_patterns_that_cannot_be_used(pattern: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        matching_files(pattern)


def test_logs_and_metrics_of_many_brokers_by_one_pattern() -> None:
    logs = find_log_files(["logs/broker-{broker}/*.log"], broker_id=9)
    assert [(file.broker_id, Path(file.path).parent.name) for file in logs] == [(1, "broker-1"), (12, "broker-12")]
    metrics = find_metric_files(MetricInputs(jmx=("logs/broker-{broker}/*.log",)))
    assert [file.broker_id for file in metrics] == [1, 12]
    with pytest.raises(InputError, match=r"no such log: logs/brokr-\{broker\}/\*: give a file, or a quoted glob"):
        find_log_files(["logs/brokr-{broker}/*"])
