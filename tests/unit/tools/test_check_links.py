"""`tools/check_links.py`: which links lead nowhere, and which pages are in no index."""

from pathlib import Path

import pytest

from tools.check_links import broken_links, orphans


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    for name, text in {
        "README.md": "[a](a.md), [parts](parts/README.md), [outside](../README.md)",
        "a.md": "[b](b.md) [nothing](nothing.md) [no heading](b.md#there) [web](https://example.com)",
        "b.md": "# Here\n\n[self](#here)",
        "parts/README.md": "[one](one.md)",
        "parts/one.md": "[back](../README.md)",
    }.items():
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_text(text)
    (tmp_path / "README.md").write_text("[c](docs/parts/two.md)")
    return tmp_path / "docs"


def test_a_link_to_no_file_or_no_heading_is_broken(docs: Path) -> None:
    assert broken_links(docs / "a.md") == ["nothing.md", "b.md#there"]
    assert broken_links(docs / "b.md") == []


def test_a_page_that_no_index_leads_to_is_an_orphan(docs: Path) -> None:
    """Another page's link is not enough: only READMEs are indexes. Pages elsewhere need to be in none."""
    pages = [docs.parent / "other.md", *sorted(docs.rglob("*.md"))]
    assert orphans(pages, docs / "README.md") == [docs / "b.md"]


def test_an_index_that_leads_to_a_folder_reaches_its_pages(docs: Path) -> None:
    (docs / "README.md").write_text("[a](a.md) [b](b.md)")
    found = orphans(sorted(docs.rglob("*.md")), docs / "README.md")
    assert found == [docs / "parts/README.md", docs / "parts/one.md"]
