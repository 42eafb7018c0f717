"""Markdown from values: cells, tables, and what the docstrings of attributes say."""

import ast
import inspect
import re
from collections.abc import Iterable, Sequence
from textwrap import dedent

ROLE = re.compile(r":[a-z]+:`~?(?:[\w.]*\.)?(\w+)`")
SPECIAL = re.compile(r"([<*])")
CODE = re.compile(r"(`+[^`]+`+)")


def escaped(text: str) -> str:
    """Plain text or a docstring in which nothing but code between backticks is Markdown."""
    one_style = ROLE.sub(r"`\1`", text).replace("``", "`")
    parts = CODE.split(" ".join(one_style.split()))
    return "".join(part if part.startswith("`") else SPECIAL.sub(r"\\\1", part) for part in parts)


def code(text: str) -> str:
    """Text as it is, in the font of code."""
    return f"`{text}`"


def listed(names: Iterable[str]) -> str:
    """Names in the font of code, with commas."""
    return ", ".join(map(code, names))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown, in which a pipe is text; a column with `>` after its header is aligned to the right."""
    titles = [title.removesuffix(">") for title in header]
    rule = ["---:" if title.endswith(">") else "---" for title in header]
    lines = [titles, rule, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def summary_of(documented: object) -> str:
    """The first paragraph of a docstring."""
    return escaped((inspect.getdoc(documented) or "").partition("\n\n")[0])


def attribute_docs(documented: type) -> dict[str, str]:
    """The docstrings under the attributes of a class, by attribute; '' for one without."""
    tree = ast.parse(dedent(inspect.getsource(documented))).body[0]
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    name = ""
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=attribute)):
                name = attribute
                found[name] = ""
            case ast.Expr(value=ast.Constant(value=str(text))) if name:
                found[name] = escaped(inspect.cleandoc(text))
                name = ""
            case _:
                name = ""
    return found
