"""Pages of the documentation: whoever follows one from top to bottom sees what it shows.

`python tools/run_page.py PAGE --write` writes what its commands print now. tests/real/test_pages.py has those that need
a Kafka.
"""

import pytest

from tools.run_page import ROOT, opened_shell, run_page

DOCS = ROOT / "docs"
ALONE = (
    "../README",
    "backup",
    "callbacks/partitions",
    "connecting",
    "entity-types",
    "lint",
    "metering",
    "metrics",
    "plans",
    "python",
    "quota-feed",
    "quota-files",
)
WITH_THE_DATASET_OF_THE_TOUR = (
    "tour",
    "callbacks/README",
    "callbacks/fair-share",
    "callbacks/groups",
    "showback",
    "what-if",
)
BESIDE_A_KAFKA = ("gateway", "serve", "topics")


@pytest.mark.parametrize("name", ALONE)
def test_a_page_shows_what_its_commands_print(name: str) -> None:
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    with opened_shell() as shell:
        assert run_page(page, shell) == page


@pytest.mark.timeout(1800)  # many runs of Spark, one after the other
def test_the_tour_and_what_goes_on_with_its_dataset() -> None:
    with opened_shell() as shell:
        for name in WITH_THE_DATASET_OF_THE_TOUR:
            page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
            assert run_page(page, shell) == page


def test_no_page_with_commands_or_programs_is_forgotten() -> None:
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    runnable = {page for page in pages if any(f"\n```{kind}\n" in page.read_text() for kind in ("console", "python"))}
    run = {(DOCS / f"{name}.md").resolve() for name in (*ALONE, *WITH_THE_DATASET_OF_THE_TOUR, *BESIDE_A_KAFKA)}
    assert {page.resolve() for page in runnable} == run
