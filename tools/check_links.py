"""Checks that the relative links and pictures of the tracked Markdown files lead to something that is there, and that
each page of the documentation is in an index: in `docs/README.md`, or in the README of a folder that is in it.
"""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

LINK = re.compile(r"(?<!\\)\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|<img[^>]*\ssrc=\"([^\"]+)\"")
INDEX = Path("docs/README.md")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The names that the headings of a Markdown file get: lower case, words joined by hyphens."""
    headings = re.findall(r"^#+ +(.+?) *#*$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[str]:
    """The links of a page, as they are written. Those with a scheme (https:, mailto:) are left out."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found = (match[1] or match[2] for match in LINK.finditer(text))
    return [link for link in found if not re.match(r"[a-z][a-z+.-]*:", link)]


def target_of(page: Path, link: str) -> tuple[Path, str]:
    """The file that a link of a page leads to, and the anchor in it, which may be empty."""
    path, _, anchor = unquote(link).partition("#")
    return (page.parent / path if path else page), anchor


def broken_links(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    broken = []
    for link in links(page):
        target, anchor = target_of(page, link)
        lacks_anchor = (
            anchor and target.suffix == ".md" and target.exists() and anchor not in anchors(target.read_text())
        )
        if not target.exists() or lacks_anchor:
            broken.append(link)
    return broken


def orphans(pages: list[Path], index: Path = INDEX) -> list[Path]:
    """The pages below the folder of `index` that are neither in it nor in a README that can be reached from it."""
    reached: set[Path] = set()
    indexes = [index.resolve()]
    while indexes:
        page = indexes.pop()
        reached.add(page)
        targets = {target_of(page, link)[0].resolve() for link in links(page)}
        indexes += [target for target in targets - reached if target.name == "README.md" and target.exists()]
        reached |= targets
    return [page for page in pages if page.is_relative_to(index.parent) and page.resolve() not in reached]


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "*.md"], capture_output=True, text=True, check=True).stdout
    pages = [Path(line) for line in listed.splitlines()]
    found = [f"{page}: {link} leads nowhere" for page in pages for link in broken_links(page)]
    found += [f"{page}: is in no index; {INDEX} should lead to it" for page in orphans(pages)]
    print("\n".join(found) or f"{len(pages)} pages, no broken link, and each is in the index.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
