"""The log of a server: lines on standard error that never make it wait, and never more than somebody can read."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from queue import Full, Queue
from threading import Thread
from typing import Any, Final, TextIO

import structlog

__all__ = ["LineLimit", "LogWriter", "configure_log"]

QUEUED_LINES: Final = 1_000
SUBJECTS: Final = 1_000


class LogWriter:
    """Writes lines from a thread of its own. What nobody reads in time is dropped, and the number of lines with it is
    written as soon as that is possible; a logger of structlog, whose levels are all written alike.
    """

    def __init__(self, stream: TextIO) -> None:
        # The bare descriptor: a thread that waits within Python's own stream would abort the interpreter at its end.
        self._descriptor = stream.fileno()
        self._lines: Queue[bytes | None] = Queue(QUEUED_LINES)
        self._dropped = 0
        self._thread = Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def msg(self, line: str) -> None:
        """Write a line, soon."""
        try:
            self._lines.put_nowait(f"{line}\n".encode(errors="backslashreplace"))
        except Full:
            self._dropped += 1

    debug = info = warning = warn = error = exception = critical = fatal = log = msg

    def close(self, *, within_s: float = 1.0) -> None:
        """Write what waits, as far as somebody reads it in time."""
        try:
            self._lines.put(None, timeout=within_s)
        except Full:
            return
        self._thread.join(within_s)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                line = b"%d lines of this log were dropped: nobody read them in time\n" % dropped + line
            while line:
                try:
                    line = line[os.write(self._descriptor, line) :]
                except OSError:
                    break  # closed by whoever read it


class LineLimit:
    """At most so many lines in a time for each subject, such as a host: nonsense sent all day must not fill a disk."""

    def __init__(self, lines: int, *, window_s: float) -> None:
        self._lines = lines
        self._window_s = window_s
        self._written: dict[str, tuple[float, int]] = {}

    def allows(self, subject: str, now_s: float) -> int | None:
        """How many lines were left out since the last one; None where this one is to be left out, too."""
        since, lines = self._written.get(subject, (now_s, 0))
        if subject not in self._written and len(self._written) >= SUBJECTS:
            self._written.clear()  # so many at once: begin to count anew
        if now_s - since >= self._window_s:
            self._written[subject] = now_s, 1
            return max(lines - self._lines, 0)
        self._written[subject] = since, lines + 1
        return 0 if lines < self._lines else None


def configure_log(stream: TextIO, *, as_json: bool) -> LogWriter:
    """Send the events of structlog, and warnings of the standard library's logging, to a stream.

    Tracebacks show no local variables: these hold what clients sent, passwords among it.
    """
    writer = LogWriter(stream)
    renderer: list[Callable[..., Any]]
    if as_json:
        transformer = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        renderer = [structlog.processors.ExceptionRenderer(transformer), structlog.processors.JSONRenderer()]
    else:
        renderer = [
            structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback)
        ]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            *renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *_: writer,
    )
    logging.basicConfig(handlers=[_Forwarded()], level=logging.WARNING, force=True)
    return writer


class _Forwarded(logging.Handler):
    """Records of other libraries, such as asyncio, as events of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(record.name)
        log.log(record.levelno, record.getMessage(), exc_info=record.exc_info)
