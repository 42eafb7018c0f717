"""How showback is printed."""

import csv
import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from kquota.cli import run
from kquota.cli.pipeline.showback import _remarks, _text, _write_unowned
from kquota.pipeline.owners import job
from kquota.policy import read_owner_rules

GIB = 2**30


def row(owner: str, amount: float | None, limit: float | None, share: float | None, **changes: Any) -> dict[str, Any]:
    given = {"cluster": "", "owner": owner, "date": date(2026, 7, 1), "key": "producer_byte_rate"}
    return given | {"amount": amount, "limit": limit, "share": share, "unknown_amounts": 0} | changes


ROWS = (
    row("payments", 3.0 * GIB, 2.0 * 2**20, 0.75),
    row("unowned", 1.0 * GIB, None, 0.25, unknown_amounts=1),
    row("payments", None, 2.0, None, key="controller_mutation_rate", unknown_amounts=2),
    row("payments", 5e-7, 2.5, 1.0, key="request_percentage", date=date(2026, 7, 2)),
)
UNOWNED = (
    {"user": "eve", "client_id": "", "ip": None, "share": 0.2},
    {"user": "eve", "client_id": "x,y", "ip": None, "share": 0.05},
    {"user": "", "client_id": "", "ip": None, "share": None},
    {"user": None, "client_id": None, "ip": "10.0.0.1", "share": 0.9},
)


def test_for_people_it_is_days_and_keys_largest_first() -> None:
    text = "\n".join(_text(ROWS)).replace("\N{NO-BREAK SPACE}", " ")
    assert (
        text
        == """\
2026-07-01
  key                       owner     amount     share  limit
  controller_mutation_rate  payments  unknown    -      2 partitions/s
  producer_byte_rate        payments  3 GiB      75 %   2 MiB/s
  producer_byte_rate        unowned   1 GiB (+)  25 %   -

2026-07-02
  key                 owner     amount            share  limit
  request_percentage  payments  0 ms of a thread  100 %  2.5 % of a thread"""
    )


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """What the command prints of the rows above."""
    found = job.Showback(ROWS, UNOWNED, knows_owners=True, has_limits=True)
    monkeypatch.setattr(job, "showback", lambda *_: found)

    def run_it(*arguments: str) -> tuple[str, str]:
        assert run(["pipeline", "showback", "--dataset", "x", *arguments]) == 0
        captured = capsys.readouterr()
        return captured.out, captured.err

    return run_it


def test_for_programs_numbers_are_plain(printed: Any) -> None:
    out, error = printed("--format", "csv")
    rows = list(csv.reader(out.splitlines()))
    assert rows[0] == ["cluster", "owner", "date", "key", "amount", "limit", "share", "unknown_amounts"]
    assert rows[1] == ["", "payments", "2026-07-01", "producer_byte_rate", "3221225472", "2097152", "0.75", "0"]
    assert rows[3][4:] == ["", "2", "", "2"]
    assert rows[4][4:] == ["0.0000005", "2.5", "1", "0"]
    assert error.splitlines() == [
        "(+) or more: the amounts of some requests are not known",
        "without an owner: 4, those with the largest part of anything first",
        "  user=eve                 20.0%",
        "  user=eve client-id=x,y   5.0%",
        "  (no user, no client-id)  -",
        "  ip=10.0.0.1              90.0%",
        "--unowned FILE lists them all, as rows to complete",
    ]
    records = json.loads(printed("--format", "json")[0])
    given = row("payments", None, 2, None, key="controller_mutation_rate", unknown_amounts=2)
    assert records[2] == given | {"date": "2026-07-01"}
    assert len(printed("--format", "jsonl")[0].splitlines()) == 4


def test_the_list_of_clients_without_an_owner_becomes_a_map(printed: Any, tmp_path: Path) -> None:
    """Clients of whom both halves are known stand first; what would match everybody is left out."""
    path = tmp_path / "nobody.csv"
    _, error = printed("--unowned", str(path))
    assert path.read_text() == 'owner,user,client-id,ip\n,eve,"x,y",\n,eve,,\n,,,10.0.0.1\n'
    assert "fill in the owners" in error
    rules = read_owner_rules(path.read_bytes(), name=str(path))
    assert [(rule.names, rule.owner) for rule in rules] == [
        ({"user": "eve", "client-id": "x,y"}, ""),
        ({"user": "eve"}, ""),
        ({"ip": "10.0.0.1"}, ""),
    ]


def test_what_else_is_said() -> None:
    found = job.Showback(ROWS, UNOWNED * 4, knows_owners=False, has_limits=False)
    said = list(_remarks(found, "dir", None))
    assert said[1] == "no limits: `kquota pipeline resolve --dataset dir` finds them"
    assert said[2].startswith("without an owner: 16, ")
    assert said[-2:] == ["  and 6 more", "--unowned FILE lists them all, as rows to complete for --owners FILE"]
    assert list(_remarks(job.Showback(ROWS[:1], (), knows_owners=True, has_limits=True), "dir", None)) == []


def test_an_owner_map_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "showback", "--dataset", "x", "--owners", "nowhere.csv"]) == 2
    assert "nowhere.csv: cannot read the owners" in capsys.readouterr().err


def test_a_list_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="cannot be written"):
        _write_unowned(str(tmp_path / "no" / "x.csv"), UNOWNED)
