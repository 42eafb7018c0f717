"""``kquota pipeline recommend`` as a command: whose rules it looks at, and the file and table that it writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from kquota.cli import run
from kquota.files import read_quota_file
from kquota.pipeline.dataset import spark_run
from tests.kit.analysis_directory import AnalysisDirectory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUOTAS = """\
- {entity: {user: alice}, values: {producer_byte_rate: 9000}, owner: payments, labels: {tier: gold}}
- {entity: {user: bob}, values: {producer_byte_rate: 9000}}
- {entity: {user: null}, values: {producer_byte_rate: 9000}}
"""


@pytest.fixture
def analysis(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AnalysisDirectory:
    """Half a minute of 1,000 bytes a second by each of alice, bob and carol."""
    monkeypatch.setattr(spark_run, "start_session", lambda **_: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    analysis = AnalysisDirectory()
    for user in ("alice", "bob", "carol"):
        analysis.client(user, "app")
        for second in range(30):
            analysis.usage(user, "app", second, 1000.0, amount_max=1000.0, connections=1, grain="client")
    (tmp_path / "owners.csv").write_text("owner,user\nsearch,bob\nothers,alice\n")
    monkeypatch.chdir(tmp_path)
    return analysis


def written(analysis: AnalysisDirectory, quotas: str | None, name: str = "out") -> str:
    """The dataset, analysed with these quotas."""
    analysis.quotas = None if quotas is None else read_quota_file(quotas, name="quotas.yaml")
    return str(analysis.write(Path(name).absolute()))


@pytest.fixture
def usage(analysis: AnalysisDirectory) -> str:
    return written(analysis, QUOTAS)


def recommend(usage: str, *arguments: str) -> int:
    return run(["pipeline", "recommend", "--dataset", usage, "--candidates", "4", "-q", *arguments])


def test_the_file_has_each_owners_rules_together(usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The quota file's owner goes before the owner map's; labels stay."""
    assert recommend(usage, "--owners", "owners.csv", "--out", "new.yaml") == 0
    lines = [line for line in Path("new.yaml").read_text().splitlines() if not line.startswith("  # producer_byte")]
    assert [line for line in lines if "values" not in line] == [
        "quotas:",
        "  # owner payments",
        "  - entity: {user: alice}",
        "    owner: payments",
        "    labels: {tier: gold}",
        "",
        "  # owner search",
        "  - entity: {user: bob}",
        "    owner: search",
        "",
        "  # without an owner",
        "  - entity: {user: null}",
    ]
    new = read_quota_file(Path("new.yaml").read_bytes(), name="new.yaml")
    assert all(1000 <= entry.values["producer_byte_rate"] < 9000 for entry in new.entries)
    table = {row["entity"]: row["owner"] for row in pq.read_table(Path(usage) / "recommendations").to_pylist()}
    assert table == {"user=alice": "payments", "user=bob": "search", "user=<default>": "unowned"}
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["owner", "rule", "key"]
    assert [row.split()[0] for row in rows[:3]] == ["payments", "search", "unowned"]


def test_only_the_rules_of_an_owner(usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    """All others are left out of file and table, and their limits count for the capacity of brokers."""
    arguments = ["--owners", "owners.csv", "--owner", "search", "--capacity", "producer_byte_rate=18500"]
    assert recommend(usage, *arguments) == 1  # what is left, 500, is too little for bob
    captured = capsys.readouterr()
    (entry,) = read_quota_file(captured.out, name="new.yaml").entries
    assert (entry.entity.to_text(), entry.owner) == ("user=bob", "search")
    assert entry.values == {"producer_byte_rate": pytest.approx(500, rel=0.01)}
    assert captured.err.startswith("kquota: cannot be met: user=bob producer_byte_rate: at ")
    assert pq.read_table(Path(usage) / "recommendations").column("entity").to_pylist() == ["user=bob"]

    assert recommend(usage, *arguments[:-1], "producer_byte_rate=18000") == 1
    captured = capsys.readouterr()
    assert captured.out == "quotas: []\n"
    reason = "the lowest with throttled_share<=0.01; the limits that stay as they are use up the capacity"
    assert f"no limit above zero was found: {reason}" in captured.err


def test_without_owners_nothing_is_said_of_them(
    analysis: AnalysisDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = written(analysis, "- {entity: {user: null}, values: {producer_byte_rate: 9000}}\n")
    assert recommend(usage, "--out", "new.yaml") == 0
    assert "owner" not in Path("new.yaml").read_text()
    assert capsys.readouterr().out.split()[:2] == ["rule", "key"]
    assert pq.read_table(Path(usage) / "recommendations").column("owner").to_pylist() == [None]


def test_owners_that_there_are_not(analysis: AnalysisDirectory, usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert recommend(usage, "--owners", "owners.csv", "--owner", "search", "--owner", "serch") == 2
    assert "--owner serch: there is no such owner; there are others, payments, search" in capsys.readouterr().err
    assert recommend(written(analysis, None, "without"), "--owner", "search") == 2
    assert "--owner search: no owners are known: give --owners FILE" in capsys.readouterr().err
    # Known, but without a rule that is measured.
    assert recommend(usage, "--owners", "owners.csv", "--owner", "others") == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("quotas: []\n", "no rule of others is measured here\n")


def test_every_objective_is_judged_where_a_capacity_cuts_the_values(
    usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert recommend(usage, "--objective", "throttled_requests<=0") == 0
    assert capsys.readouterr().err == ""
    wanted = ["--objective", "throttled_requests<=0", "--capacity", "producer_byte_rate=900"]
    assert recommend(usage, *wanted) == 1
    assert "kquota: cannot be met: user=alice producer_byte_rate: at " in capsys.readouterr().err
    rows = pq.read_table(Path(usage) / "recommendations").to_pylist()
    assert all(row["predicted_throttled_requests"] > 0 for row in rows)
