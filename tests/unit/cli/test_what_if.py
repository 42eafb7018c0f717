"""What cannot be used by what-ifs, sweeps and recommendations is refused before Spark starts."""

import dataclasses
from pathlib import Path

import pytest

from kquota.cli import run
from kquota.pipeline.advice import what_if_job
from kquota.pipeline.advice.what_if_job import WhatIf
from kquota.pipeline.dataset import spark_run
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.summary import WhatIfRun
from tests.kit.analysis_directory import AnalysisDirectory


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that is ours, and a Spark that must not start."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(spark_run, "start_session", lambda **_: pytest.fail("Spark was started"))
    Path("empty").mkdir()
    for name in ("usage", "other"):
        AnalysisDirectory().write(Path(name))
    Path("new.yaml").write_text("- {entity: {user: a}, values: {producer_byte_rate: 5MB}}\n")
    Path("zero.yaml").write_text("- {entity: {user: a}, values: {producer_byte_rate: 0}}\n")


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["whatif", "--quotas", "zero.yaml"], "must be greater than 0"),
        (["whatif", "--quotas", "new.yaml", "--baseline", "zero.yaml"], "must be greater than 0"),
        (["whatif", "--quotas", "new.yaml", "--in-flight", "3"], "--in-flight goes with --arrivals closed"),
        (["whatif", "--quotas", "new.yaml", "--arrivals", "closed", "--in-flight", "0"], "0 is not in the range"),
        (["whatif", "--quotas", "new.yaml", "--out", "other"], "give --overwrite to replace it"),
        (["whatif", "--quotas", "new.yaml", "--out", "new.yaml"], "cannot be written to: Not a directory"),
        (["whatif", "--quotas", "new.yaml", "--out", "new.yaml/x"], "cannot be written to: Not a directory"),
        (["whatif", "--quotas", "new.yaml", "--callback", "absent:X"], "No module named 'absent'"),
        (["sweep", "--candidates", "0"], "0 is not in the range x>=2"),
        (["sweep", "--limit", "0"], "--limit 0: give a number above zero"),
        (["sweep", "--limit", "NaN"], "--limit NaN: give a number above zero"),
        (["sweep", "--factor", "nan"], "--factor nan: give a number above zero"),
        (["sweep", "--factor", "inf"], "--factor inf: give a number above zero"),
        (["sweep", "--in-flight", "3"], "--in-flight goes with --arrivals closed"),
        (["recommend", "--objective", "throttled_share<=5"], "a share is at most 1"),
        (["recommend", "--percentile", "99", "--headroom", "nan"], "--headroom nan: give a number above zero"),
        (["recommend", "--percentile", "99", "--headroom", "inf"], "--headroom inf: give a number above zero"),
        (["recommend", "--capacity", "producer_byte_rate=0"], "give a number above zero"),
        (["recommend", "--out", "empty"], "--out empty: this is a directory"),
        (["recommend", "--out", "absent/x.yaml"], "there is no directory absent"),
        (["showback", "--unowned", "absent/x.csv"], "there is no directory absent"),
        (["resolve", "--quotas", "zero.yaml"], "must be greater than 0"),
    ],
)
def test_what_cannot_be_used(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With exit code 2, in a line, and nothing is written."""
    before = sorted(Path().rglob("*"))
    step, *others = arguments
    assert run(["pipeline", step, "--dataset", "usage", *others]) == 2
    out, err = capsys.readouterr()
    assert (out, reason in err) == ("", True), err
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize("step", ["whatif", "sweep", "recommend", "resolve", "utilisation", "report", "showback"])
@pytest.mark.parametrize(
    "directory, reason",
    [("absent", "there is nothing"), ("empty", "there is nothing"), ("new.yaml", "there is a file")],
)
def test_a_directory_that_is_none(
    step: str, directory: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    quotas = ["--quotas", "new.yaml"] if step in ("whatif", "resolve") else []
    assert run(["pipeline", step, "--dataset", directory, *quotas]) == 2
    assert reason in capsys.readouterr().err


def test_that_old_limits_are_not_known_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of usage that no quotas were given to, a what-if knows none: whom the broker throttled then was not free."""
    part = WhatIfRun("open", None, "cell", 0, 0, 0, 0, 0, 0, 0, None)
    found = WhatIf(Dataset.open("usage"), part, (), has_baseline=False)
    monkeypatch.setattr(what_if_job, "what_if", lambda *_, **__: found)
    whatif = ["pipeline", "whatif", "--dataset", "usage", "--quotas", "new.yaml"]
    assert run(whatif) == 0
    assert "compared with no limits at all" in capsys.readouterr().err
    monkeypatch.setattr(what_if_job, "what_if", lambda *_, **__: dataclasses.replace(found, has_baseline=True))
    assert run(whatif) == 0
    assert capsys.readouterr().err == ""
