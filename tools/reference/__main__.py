"""Writes the reference of the documentation, `docs/reference/`, from the code.

python -m tools.reference          write it
python -m tools.reference --check  say which pages are not as the code is
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tools.reference.commands import commands_page
from tools.reference.exit_codes import exit_codes_page
from tools.reference.lint_rules import lint_rules_page
from tools.reference.metrics import metrics_page
from tools.reference.settings import settings_page
from tools.reference.tables import tables_page

TARGET: Final = Path(__file__).parents[2] / "docs" / "reference"
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "commands.md": commands_page,
    "exit-codes.md": exit_codes_page,
    "lint-rules.md": lint_rules_page,
    "metrics.md": metrics_page,
    "settings.md": settings_page,
    "tables.md": tables_page,
}
HEADER: Final = "<!-- Written by `make docs` from the code: change that, not this page. -->\n\n"


def written() -> dict[str, str]:
    """The text of each page, by its file name."""
    # Options are shown with kquota's own defaults, not with those of whoever writes the pages.
    for name in [name for name in os.environ if name.startswith("KQUOTA_")]:
        del os.environ[name]
    return {name: HEADER + page().rstrip() + "\n" for name, page in PAGES.items()}


def stale(target: Path = TARGET) -> list[str]:
    """The pages in `target` that differ from what the code says, are missing, or are not written any more."""
    pages = written()
    there = {path.name: path.read_text(encoding="utf-8") for path in target.glob("*.md")}
    return sorted(name for name in pages.keys() | there.keys() if pages.get(name) != there.get(name))


def main() -> int:
    if "--check" in sys.argv[1:]:
        found = stale()
        lines = [f"docs/reference/{name} is not as the code is; `make docs` writes it" for name in found]
        print("\n".join(lines) or "docs/reference is as the code is.")
        return 1 if found else 0
    TARGET.mkdir(exist_ok=True)
    pages = written()
    for path in TARGET.glob("*.md"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        (TARGET / name).write_text(text, encoding="utf-8")
    print(f"{len(pages)} pages in docs/reference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
