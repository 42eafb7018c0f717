"""What a long job is doing: one line per stage on stderr, and on a terminal a line that moves while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from kquota.clock import Clock

__all__ = ["Progress"]

_REFRESH_S = 0.5
_REPORT_S = 10.0


class Progress:
    """Reports stages as they run and keeps how long each took (`seconds`, by stage, in order)."""

    def __init__(self, stream: TextIO, clock: Clock, *, quiet: bool = False) -> None:
        self._stream = stream
        self._clock = clock
        self._quiet = quiet
        self._moving = not quiet and stream.isatty()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(
        self, name: str, rows: Callable[[], int] | None = None, of: int | None = None, unit: str = "lines"
    ) -> Iterator[None]:
        """Run the body as a stage.

        :param rows: read now and then from another thread: how many rows were handled so far.
        :param of: about how many there will be.
        :param unit: what they are.
        """
        started_ms = self._clock.monotonic_ms()
        done = threading.Event()

        def text() -> str:
            elapsed_s = (self._clock.monotonic_ms() - started_ms) / 1000
            counted = "" if rows is None else f"  {rows():>12,} {unit}"
            if rows is not None and of:
                counted += f" of about {of:,}"
            return f"{name:<28}{elapsed_s:7.1f} s{counted}"

        def tell() -> None:
            while not done.wait(_REFRESH_S if self._moving else _REPORT_S):
                self._write(f"\r\x1b[K{text()}" if self._moving else f"{text()} ...\n")

        teller = threading.Thread(target=tell, name="progress", daemon=True)
        if not self._quiet:
            teller.start()
        try:
            yield
        finally:
            done.set()
            if not self._quiet:
                teller.join()
            self.seconds[name] = round((self._clock.monotonic_ms() - started_ms) / 1000, 3)
        self._write(f"\r\x1b[K{text()}\n" if self._moving else f"{text()}\n")

    def note(self, text: str) -> None:
        """Tell something that belongs to no stage."""
        self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        if not self._quiet:
            self._stream.write(text)
            self._stream.flush()
