"""docs/tour.md: whoever follows it from top to bottom sees what it shows."""

import pytest

from tools.run_page import ROOT, opened_shell, run_page


@pytest.mark.timeout(1200)  # five runs of Spark, one after the other
def test_the_tour_prints_what_it_says() -> None:
    """`python tools/run_page.py docs/tour.md --write` writes what it prints now."""
    page = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    with opened_shell() as shell:
        assert run_page(page, shell) == page
