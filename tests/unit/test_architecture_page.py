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


def named(title: str) -> set[str]:
    """What is in the first column of the table that begins with this title."""
    rows = PAGE.split(f"\n| {title} |")[1].split("\n\n")[0]
    return {name for cell in re.findall(r"^\| (.*?) \|", rows, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)}


def test_the_picture_is_the_contract_of_imports() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one.get("containers") == ["kquota"])
    picture = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]
    drawn = [re.split(r" {2,}", line)[0] for line in picture.splitlines()]
    assert ["__main__", *drawn] == [re.sub(r"[()]", "", layer) for layer in layers]


@pytest.mark.parametrize("title, parent", [("package", "."), ("folder of `pipeline`", "pipeline")])
def test_every_folder_is_in_a_table_and_no_other(title: str, parent: str) -> None:
    modules = {path.stem for path in (SOURCE / parent).glob("*.py")}
    assert named(title) - modules == folders(SOURCE / parent)
