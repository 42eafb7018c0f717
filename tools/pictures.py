"""Makes the pictures of the documentation anew: docs/images, from the report on the sample capture.

It needs programs that are not Python's: ``apt-get install chromium fonts-dejavu-core poppler-utils pngquant``. Without
an argument the sample is analysed first; with a directory, its report.html is taken as it is.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
IMAGES: Final = ROOT / "docs" / "images"
NEEDED: Final = ("chromium", "pdftoppm", "pngquant")

NEW_LIMITS: Final = ((" 200000}", " 90000}"), (" 150000}", " 300000}"))
"""What docs/what-if.md tries: another limit for user=shop and for user=billing."""

PLAIN: Final = "body { background: #fff } nav, .skip, header, footer { display: none } section { border: 0; margin: 0 }"


@dataclass(frozen=True, slots=True)
class Part:
    """A picture of a part of the page: of one section, and there of what `hidden` does not name."""

    name: str
    section: str
    width: int
    hidden: str = ""

    @property
    def style(self) -> str:
        hidden = f"main > :not({self.section})" + (f", {self.hidden}" if self.hidden else "")
        return f"{PLAIN} {hidden} {{ display: none }}"


PARTS: Final = (
    Part("what-if.png", "#what-if", 960),
    Part("curves.png", "#curves", 800, "#curves figure:nth-child(n + 5)"),
    Part("recommendations.png", "#recommendations", 960, "#recommendations tr:nth-child(n + 6)"),
)


def main() -> int:
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        print(f"not installed: {', '.join(missing)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        usage = Path(sys.argv[1]) if len(sys.argv) > 1 else analysed(folder)
        # Where this checkout happens to lie is no part of the picture.
        report = (usage / "report.html").read_text(encoding="utf-8").replace(str(ROOT), "/srv/kquota")
        browser = Browser(folder)
        browser.picture(IMAGES / "report.png", report, width=1280, height=1180)
        browser.picture(IMAGES / "report-1280.png", report, width=1280, columns=2, scale=_SMALL)
        browser.picture(IMAGES / "report-390.png", report, width=390, columns=6, scale=_SMALL)
        browser.print_picture(IMAGES / "report-print.png", report)
        for part in PARTS:
            browser.picture(IMAGES / part.name, report, width=part.width, style=part.style)
    return 0


def analysed(folder: Path) -> Path:
    """The sample analysed, with all that the report can show."""
    usage = folder / "kquota-demo"
    quotas = (ROOT / "examples" / "quotas.yaml").read_text(encoding="utf-8")
    for old, new in NEW_LIMITS:
        assert quotas.count(old) == 1, old
        quotas = quotas.replace(old, new)
    (folder / "new.yaml").write_text(quotas, encoding="utf-8")
    steps = (
        ("demo", "--out", str(usage)),
        ("pipeline", "whatif", "--dataset", str(usage), "--quotas", str(folder / "new.yaml")),
        ("pipeline", "sweep", "--dataset", str(usage)),
        ("pipeline", "recommend", "--dataset", str(usage), "--out", str(folder / "recommended.yaml")),
        ("pipeline", "report", "--dataset", str(usage)),
    )
    for step in steps:
        subprocess.run([Path(sys.executable).with_name("kquota"), *step], check=True)
    return usage


@dataclass(frozen=True, slots=True)
class Browser:
    """Chromium without a window; its files are in `folder`."""

    folder: Path

    def picture(
        self,
        target: Path,
        page: str,
        *,
        width: int,
        height: int | None = None,
        columns: int = 1,
        scale: float = 1.0,
        style: str = "",
    ) -> None:
        """The page as it is on a screen so wide, cut into columns of the same height that stand side by side."""
        page = page.replace("</head>", f"<style>{style}</style></head>")
        if height is None:
            height = -(-self._height(page, width) // columns)
        frames = "".join(_frame(page, width, height, above=number * height) for number in range(columns))
        self._shoot(target, frames, columns * width + (columns - 1) * _GAP, height, scale=scale)

    def print_picture(self, target: Path, page: str, *, across: int = 4) -> None:
        """The pages as they are printed."""
        self._run(f"--print-to-pdf={self.folder / 'page.pdf'}", "--no-pdf-header-footer", self._written(page))
        subprocess.run(
            ["pdftoppm", "-r", _PRINT_DPI, "-png", self.folder / "page.pdf", self.folder / "sheet"], check=True
        )
        sheets = sorted(self.folder.glob("sheet-*.png"))
        images = "".join(f'<img src="{sheet.name}">' for sheet in sheets)
        width, height = _size(sheets[0])
        rows = -(-len(sheets) // across)
        self._shoot(target, images, across * width + (across - 1) * _GAP, rows * height + (rows - 1) * _GAP)

    def _height(self, page: str, width: int) -> int:
        """Of the whole page on a screen so wide."""
        script = (
            "<script>onload = () => { document.title ="
            " 'height ' + Math.ceil(frames[0].document.body.getBoundingClientRect().bottom) }</script>"
        )
        dumped = self._run("--dump-dom", self._written(_SHEET.format(_frame(page, width, 100, above=0) + script)))
        found = re.search(r"<title>height (\d+)</title>", dumped)
        assert found, dumped
        return int(found[1])

    def _shoot(self, target: Path, body: str, width: int, height: int, *, scale: float = 1.0) -> None:
        raw = self.folder / target.name
        size = (f"--window-size={width},{height}", f"--force-device-scale-factor={scale}")
        self._run(f"--screenshot={raw}", *size, self._written(_SHEET.format(body)))
        subprocess.run([*_FEWER_COLOURS, "--output", target, raw], check=True)
        width, height = _size(target)
        print(f"{target.name}  {width} x {height}, {target.stat().st_size / 1000:.0f} kB")

    def _written(self, page: str) -> str:
        path = self.folder / "page.html"
        path.write_text(page, encoding="utf-8")
        return path.as_uri()

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [
                *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
                *("--no-first-run", "--hide-scrollbars", "--disable-background-networking"),
                *(f"--user-data-dir={self.folder / 'profile'}", "--virtual-time-budget=10000", *arguments),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return done.stdout


_GAP: Final = 10
_SMALL: Final = 0.7
"""A whole page is for an impression."""
_PRINT_DPI: Final = "50"
_FEWER_COLOURS: Final = ("pngquant", "--force", "--speed", "1", "--nofs", "64")
_SHEET: Final = (
    "<!doctype html><title></title><style>"
    f"body {{{{ margin: 0; background: #999; display: flex; flex-wrap: wrap; gap: {_GAP}px }}}}"
    " div {{ overflow: hidden; background: #fff }} iframe {{ border: 0; display: block }} img {{ display: block }}"
    "</style><body>{}"
)


def _frame(page: str, width: int, height: int, *, above: int) -> str:
    """A window so large onto the page, with so much of the page above it."""
    return (
        f'<div style="width:{width}px;height:{height}px"><iframe srcdoc="{escape(page)}" width="{width}"'
        f' height="{above + height}" style="margin-top:-{above}px"></iframe></div>'
    )


def _size(image: Path) -> tuple[int, int]:
    """Width and height of a PNG, which stand in its first chunk."""
    head = image.read_bytes()[16:24]
    return int.from_bytes(head[:4]), int.from_bytes(head[4:])


if __name__ == "__main__":
    sys.exit(main())
