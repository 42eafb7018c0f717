"""Checks that the relative links and pictures of the tracked Markdown files lead to something that is there."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

LINK = re.compile(r"(?<!\\)\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|<img[^>]*\ssrc=\"([^\"]+)\"")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The names that the headings of a Markdown file get: lower case, words joined by hyphens."""
    headings = re.findall(r"^#+ +(.+?) *#*$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """The links of a page that lead nowhere. Those with a scheme (https:, mailto:) are not looked at."""
    text = page.read_text(encoding="utf-8")
    broken = []
    for link in (match[1] or match[2] for match in LINK.finditer(FENCE.sub("", text))):
        path, _, anchor = unquote(link).partition("#")
        target = page.parent / path if path else page
        is_elsewhere = re.match(r"[a-z][a-z+.-]*:", link) is not None
        lacks_anchor = (
            anchor and target.suffix == ".md" and target.exists() and anchor not in anchors(target.read_text())
        )
        if not is_elsewhere and (not target.exists() or lacks_anchor):
            broken.append(link)
    return broken


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "*.md"], capture_output=True, text=True, check=True).stdout
    pages = [Path(line) for line in listed.splitlines()]
    found = [f"{page}: {link} leads nowhere" for page in pages for link in broken_links(page)]
    print("\n".join(found) or f"{len(pages)} pages, no broken link.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
