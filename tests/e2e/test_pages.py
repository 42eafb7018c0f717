"""Pages of the documentation: whoever follows one from top to bottom sees what it shows.

`python tools/run_page.py PAGE --write` writes what its commands print now.
"""

import pytest

from tools.run_page import ROOT, opened_shell, run_page

DOCS = ROOT / "docs"


@pytest.mark.parametrize(
    "name", ["../README", "backup", "callbacks/partitions", "entity-types", "metering", "metrics", "plans"]
)
def test_a_page_shows_what_its_commands_print(name: str) -> None:
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    with opened_shell() as shell:
        assert run_page(page, shell) == page


@pytest.mark.timeout(1800)  # eight runs of Spark, one after the other
def test_the_tour_and_what_goes_on_with_its_dataset() -> None:
    with opened_shell() as shell:
        for name in ["tour", "callbacks/README", "callbacks/fair-share", "callbacks/groups"]:
            page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
            assert run_page(page, shell) == page
