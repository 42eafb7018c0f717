"""docs/quota-feed.md: its example runs, and prints what the page says that it prints."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "quota-feed.md").read_text(encoding="utf-8")


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    [(program, printed)] = re.findall("```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
    exec(program, {"__name__": "example"})
    assert capsys.readouterr().out == printed
