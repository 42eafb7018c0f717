"""docs/lint.md: a section for every rule, and every example says what kquota says."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from kquota.cli import run
from kquota.files import read_quota_file
from kquota.policy import side_effects

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "lint.md").read_text(encoding="utf-8")
RULE = re.compile(r'Finding\(\s*"([a-z-]+)"')

SECTION = re.compile(r"^### (\S+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(yaml|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)

SECTIONS: dict[str, str] = dict(SECTION.findall(PAGE))


def examples(yaml_blocks: int) -> list[tuple[str, list[str]]]:
    """(rule, the files and what is said) of the examples that have so many files."""
    found = []
    for title, body in SECTIONS.items():
        blocks = BLOCK.findall(body)
        texts = [i for i, (kind, _) in enumerate(blocks) if kind == "text"]
        for start, end in pairwise([-1, *texts]):
            if end - start - 1 == yaml_blocks:
                found.append((title, [text for _, text in blocks[start + 1 : end + 1]]))
    return found


def test_every_rule_has_a_section() -> None:
    """Those of the code, wherever a finding is made."""
    code = "".join(path.read_text() for path in (ROOT / "src" / "kquota" / "policy").glob("*.py"))
    assert set(RULE.findall(code)) | {"unreachable", "overridden"} == set(SECTIONS)


@pytest.mark.parametrize("rule, example", examples(1))
def test_an_example_of_a_file(
    rule: str, example: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the command prints, word by word; values that no file may hold are told when it is read."""
    quotas, said = example
    monkeypatch.chdir(tmp_path)
    Path("quotas.yaml").write_text(quotas)
    code = run(["lint", "quotas.yaml"])
    captured = capsys.readouterr()
    if code == 2:
        assert captured.out == ""
        assert captured.err.startswith(said)
        assert rule in ("not-positive", "refused")
    else:
        assert captured.out == said
        assert f"[{rule}]" in said
        assert code == int(" warning: " in said)


@pytest.mark.parametrize("rule, example", examples(2))
def test_an_example_of_a_change(rule: str, example: list[str]) -> None:
    before, after = (read_quota_file(text, name="q.yaml").snapshot() for text in example[:2])
    said = [
        f"{one.severity}: {one.entity.to_text() if one.entity else ''} {one.key}: {one.message} [{one.rule}]\n"
        for one in side_effects(before, after)
    ]
    assert "".join(said) == example[2]
    assert f"[{rule}]" in example[2]
