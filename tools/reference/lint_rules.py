"""The page of the rules of lint: what the code can find, how bad it is, and where it is explained."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import kquota.policy
from kquota.policy import Severity
from tools.reference.markdown import table

ROOT = Path(__file__).parents[2]
POLICY = Path(kquota.policy.__file__).parent
CHANGES = "side_effects.py"
"""The module of what is found in a change, not in quotas."""
SECTION = re.compile(r"^### (\S+)\n\n(.*?)\n\n", re.MULTILINE | re.DOTALL)
SENTENCE = re.compile(r"(?:\*[a-z]+\.?\*\s*)?(.*?[.:])(?:\s|$)", re.DOTALL)


def lint_rules_page() -> str:
    """Each rule with its severities, where it is looked for, and the first words of its explanation in docs/lint.md."""
    explained = dict(SECTION.findall((ROOT / "docs" / "lint.md").read_text(encoding="utf-8")))
    severities: dict[str, set[str]] = defaultdict(set)
    places: dict[str, set[str]] = defaultdict(set)
    for path in sorted(POLICY.glob("*.py")):
        for rule, found in findings(ast.parse(path.read_text(encoding="utf-8"))):
            severities[rule] |= found
            places[rule].add("changes" if path.name == CHANGES else "quotas")
    order = list(explained)
    rows = [
        (
            f"[`{rule}`](../lint.md#{rule})",
            ", ".join(one for one in Severity if one in severities[rule]),
            ", ".join(sorted(places[rule], reverse=True)),
            first_sentence(explained[rule]),
        )
        for rule in sorted(severities, key=order.index)
    ]
    return "\n\n".join(
        [
            "# Rules of lint",
            "What `kquota lint` finds in quotas, and `kquota plan` in changes; [each with an example](../lint.md).",
            table(["rule", "severity", "in", ""], rows),
        ]
    )


def findings(tree: ast.AST) -> Iterator[tuple[str, set[str]]]:
    """The rules and severities of each `Finding(...)` that names its rule; a severity may be a local name."""
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        named = {
            target.id: severities_in(node.value)
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
                rule, severity = node.args[:2]
                found = named.get(severity.id, set()) if isinstance(severity, ast.Name) else severities_in(severity)
                for one in rules_in(rule):
                    yield one, found


def rules_in(node: ast.AST) -> list[str]:
    return [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def severities_in(node: ast.AST) -> set[str]:
    """The values of all `Severity.NAME` in an expression."""
    return {
        Severity[one.attr].value
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "Severity"
    }


def first_sentence(text: str) -> str:
    """Of a section of docs/lint.md, without the severity that it begins with."""
    match = SENTENCE.match(text)
    assert match is not None
    sentence = " ".join(match[1].split())
    return sentence[0].upper() + sentence[1:].removesuffix(":").replace("](", "](../")
