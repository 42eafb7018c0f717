"""The report in a real browser: complete without any network, and no wider than the screen."""

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kquota.pipeline.report.page import render_page
from tests.kit import example_report
from tests.kit.not_run import not_run

# Another page measures the report in a frame: a browser's window cannot be as narrow as a telephone, a frame can, and
# the report's own policy lets no script run in it.
PROBE = """<!doctype html><title>probe</title>
<iframe id="frame" src="report.html" width="{width}" height="900"></iframe>
<pre id="found"></pre><script>
document.getElementById("frame").onload = (event) => {{
  const page = event.target.contentWindow;
  const fetched = page.performance.getEntriesByType("resource").map((one) => one.name);
  const root = page.document.documentElement;
  const wide = root.scrollWidth;
  const details = [...page.document.querySelectorAll("details")];
  details.forEach((one) => {{ one.open = true; }});
  document.getElementById("found").textContent = JSON.stringify(
    [fetched.length, wide, root.scrollWidth, page.innerWidth, page.document.querySelectorAll("svg").length]);
}};
</script>"""


class Handler(SimpleHTTPRequestHandler):
    """Remembers what was asked for."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@pytest.fixture
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        not_run("BROWSER", "there is no chromium: apt-get install chromium")
    return found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, list[str], Path]]:
    """Address of a folder, what was asked of it, and the folder."""
    folder = tmp_path / "served"
    folder.mkdir()
    asked: list[str] = []
    handler = type("OwnHandler", (Handler,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked, folder
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("kind", ["a_report", "a_hostile_report", "an_empty_report"])
def test_nothing_is_fetched_and_nothing_sticks_out(
    chromium: str, served: tuple[str, list[str], Path], tmp_path: Path, kind: str, width: int
) -> None:
    """Opened with every name unresolvable, the page asks for nothing but itself, and fits its screen, details open."""
    address, asked, folder = served
    page = render_page(getattr(example_report, kind)(), generated=datetime(2026, 1, 2, tzinfo=UTC))
    (folder / "report.html").write_text(page, encoding="utf-8")
    (folder / "probe.html").write_text(PROBE.format(width=width), encoding="utf-8")
    result = subprocess.run(
        [
            *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            *(f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1600,1000", "--virtual-time-budget=10000"),
            *("--dump-dom", f"{address}/probe.html"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.search(r'<pre id="found">\[([\d,]+)\]</pre>', unescape(result.stdout))
    assert found, result.stdout + result.stderr
    fetched, wide, opened_wide, inner, drawings = map(int, found[1].split(","))
    assert fetched == 0
    assert [path for path in asked if path != "/favicon.ico"] == ["/probe.html", "/report.html"]
    assert max(wide, opened_wide) <= inner
    assert drawings > 0 or kind == "an_empty_report"
