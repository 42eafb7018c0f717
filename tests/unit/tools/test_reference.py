"""`tools/reference`: the pages say what the code says, in Markdown that shows it as it is."""

import ast
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from tools.reference.__main__ import PAGES, stale, written
from tools.reference.commands import commands, paragraphs, taking
from tools.reference.lint_rules import findings, first_sentence
from tools.reference.markdown import attribute_docs, escaped, table


@dataclass
class Documented:
    """Of which one attribute says what it is."""

    silent: int = 1
    spoken: int = 2
    """How much a :class:`~kquota.errors.KquotaError` <costs>.

    More.
    """
    late: int = 3


def test_attributes_have_the_text_below_them() -> None:
    assert attribute_docs(Documented) == {
        "silent": "",
        "spoken": r"How much a `KquotaError` \<costs>. More.",
        "late": "",
    }


def test_text_is_shown_as_it_is() -> None:
    assert escaped("``code *``, *.log and KQUOTA_<NAME>") == r"`code *`, \*.log and KQUOTA_\<NAME>"
    assert table(["a>", "b"], [("1", "x|y")]) == "| a | b |\n| ---: | --- |\n| 1 | x\\|y |"


@click.command(epilog="\b\nExamples:\n  tool run *\n      --now\n\nIt is *fast*.")
@click.option("--level", type=click.Choice(["low", "high"]), default="low", show_default=True, help="How much.")
@click.option("--secret", hidden=True)
def tool(level: str, secret: str) -> None:
    """Do it.

    All of it.
    """


def test_a_command_has_its_usage_its_options_and_its_examples() -> None:
    [section] = commands(tool, "tool", None)
    assert section == "\n\n".join(
        [
            "## tool",
            "Do it.",
            "All of it.",
            "```text\ntool [OPTIONS]\n```",
            "| option |  |\n| --- | --- |\n| `--level [low\\|high]` | How much.  [default: low] |".replace("  [", " ["),
            "```sh\ntool run *\n    --now\n```",
            r"It is \*fast\*.",
        ]
    )


def test_indented_lines_that_are_no_examples_keep_their_title() -> None:
    assert list(paragraphs("\b\nForms:\n  a=b\n  c")) == ["Forms:", "```text\na=b\nc\n```"]


def test_commands_that_take_an_option_are_found_in_groups_as_well() -> None:
    assert {"kquota serve", "kquota pipeline whatif"} <= set(taking("--define"))
    assert "kquota history" not in taking("--define")


def test_a_finding_has_the_severities_that_its_code_can_give_it() -> None:
    source = """
def one():
    severity = Severity.ERROR if x else Severity.INFO
    yield Finding("a", severity, None)
    yield Finding("b" if y else "c", Severity.WARNING, None)
"""
    assert sorted((rule, sorted(found)) for rule, found in findings(ast.parse(source))) == [
        ("a", ["error", "info"]),
        ("b", ["warning"]),
        ("c", ["warning"]),
    ]


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("*info.* A thing. More.", "A thing."),
        ("*warning* for two\nthings: more", "For two things"),
        ("*warning.* See [it](a.md).", "See [it](../a.md)."),
    ],
)
def test_the_first_sentence_of_an_explanation(text: str, sentence: str) -> None:
    assert first_sentence(text) == sentence


def test_stale_pages_are_named(tmp_path: Path) -> None:
    for name, text in written().items():
        (tmp_path / name).write_text(text)
    assert stale(tmp_path) == []
    (tmp_path / "settings.md").write_text("old")
    (tmp_path / "commands.md").unlink()
    (tmp_path / "gone.md").write_text("of before")
    assert stale(tmp_path) == ["commands.md", "gone.md", "settings.md"]


def test_what_the_environment_says_is_no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    before = PAGES["commands.md"]()
    monkeypatch.setenv("KQUOTA_TIMEZONE", "Europe/Berlin")
    assert written()["commands.md"].endswith(before.rstrip() + "\n")
