"""docs/architecture.md: its picture is the contract of imports, and its tables name the folders that there are."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SOURCE = ROOT / "src" / "kquota"


def folders(parent: Path) -> set[str]:
    return {path.parent.name for path in parent.glob("*/__init__.py")}


def named(header: str) -> set[str]:
    """The first cells of the table with this header."""
    rows = PAGE.split(f"\n{header}\n")[1].split("\n\n")[0]
    return {name for cell in re.findall(r"^\| (.*?) \|", rows, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)}


def test_the_picture_is_the_contract_of_imports() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one.get("containers") == ["kquota"])
    picture = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]
    drawn = [re.split(r" {2,}", line)[0] for line in picture.splitlines()]
    assert ["__main__", *drawn] == [re.sub(r"[()]", "", layer) for layer in layers]


@pytest.mark.parametrize(
    "header, parent",
    [("| package | pure | knows | does not know |", "."), ("| folder of `pipeline` | is about |", "pipeline")],
)
def test_every_folder_is_in_a_table(header: str, parent: str) -> None:
    assert folders(SOURCE / parent) <= named(header)
    assert {name for name in named(header) if not (SOURCE / parent / f"{name}.py").exists()} == folders(SOURCE / parent)
