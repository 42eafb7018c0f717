"""The report in a real browser: complete without any network, no wider than the screen, and fit to be read."""

import json
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
  document.getElementById("found").textContent = JSON.stringify({{
    fetched: fetched.length, wide: Math.max(wide, root.scrollWidth), inner: page.innerWidth,
    drawings: page.document.querySelectorAll("svg").length, unreadable: unreadable(page.document),
  }});
}};
// Rectangles of the lines on which a part of a text stands.
function lines(node, start, end) {{
  const range = node.ownerDocument.createRange();
  range.setStart(node, start);
  range.setEnd(node, end);
  return [...range.getClientRects()].filter((one) => one.width > 1);
}}
function unreadable(page) {{
  const found = [];
  const size = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  while (size.nextNode()) {{
    const text = size.currentNode, cell = text.parentElement.closest("th, td, .tiles b");
    // Names may be of any length, and headings that are there for a reader aloud alone stand nowhere.
    if (!cell || text.parentElement.closest("code, bdi, pre") || cell.closest("thead")?.offsetWidth === 1) continue;
    const scroll = cell.closest(".scroll")?.getBoundingClientRect();
    for (const word of text.data.matchAll(/[^\\s\\u00a0\\/-]+/g)) {{
      const on = lines(text, word.index, word.index + word[0].length);
      if (new Set(on.map((one) => Math.round(one.top))).size > 1) found.push(`broken: ${{word[0]}} of ${{text.data}}`);
      const right = Math.max(...on.map((one) => one.right)), left = Math.min(...on.map((one) => one.left));
      const room = cell.getBoundingClientRect();
      if (right > room.right + 1 || left < room.left - 1) found.push(`out of its cell: ${{word[0]}} of ${{text.data}}`);
      if (scroll && right > scroll.right + 1) found.push(`out of sight: ${{word[0]}} of ${{text.data}}`);
    }}
  }}
  return found;
}}
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


@pytest.mark.parametrize("width", [390, 900, 1280])
@pytest.mark.parametrize("kind", ["a_report", "a_hostile_report", "an_empty_report", "a_long_report"])
def test_nothing_is_fetched_and_nothing_sticks_out(
    chromium: str, served: tuple[str, list[str], Path], tmp_path: Path, kind: str, width: int
) -> None:
    """Opened with every name unresolvable, the page asks for nothing but itself, and fits its screen, details open.

    Words stand on one line and in their own cells.
    """
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
    dumped = re.search(r'<pre id="found">({.*?})</pre>', result.stdout)
    assert dumped, result.stdout + result.stderr
    found = json.loads(unescape(dumped[1]))
    assert found["fetched"] == 0
    assert [path for path in asked if path != "/favicon.ico"] == ["/probe.html", "/report.html"]
    assert found["wide"] <= found["inner"]
    assert found["drawings"] > 0 or kind == "an_empty_report"
    # What is hostile stands where kquota's own words are meant to, and is as long as it likes.
    assert found["unreadable"] == [] or kind == "a_hostile_report"
