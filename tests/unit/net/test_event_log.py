"""The log of the server: it never waits, never floods, and shows no secrets."""

import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from kquota.net.event_log import QUEUED_LINES, LineLimit, LogWriter, configure_log


def test_a_log_that_nobody_reads_costs_its_lines_alone() -> None:
    """What was dropped is counted, and the count written once somebody reads again."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        log = LogWriter(stream)
        line = "x" * 1000
        for _ in range(QUEUED_LINES * 3):
            log.msg(line)
        received = bytearray()

        def read() -> None:
            while part := os.read(reading, 65536):
                received.extend(part)

        reader = threading.Thread(target=read)
        reader.start()
        log.close(within_s=30)
    reader.join()
    os.close(reading)
    lines = received.decode().splitlines()
    dropped = sum(int(one.split()[0]) for one in lines if one.endswith("nobody read them in time"))
    assert lines.count(line) + dropped == QUEUED_LINES * 3
    assert dropped > 0


def test_closing_does_not_wait_for_a_reader_that_never_reads() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        log = LogWriter(stream)
        for _ in range(QUEUED_LINES * 2):
            log.msg("x" * 1000)
        log.close(within_s=0.01)
        # The thread ends with the pipe.
        os.close(reading)


def test_a_host_has_so_many_lines_in_a_time() -> None:
    """The next line after it says how many were left out; other hosts have their own."""
    limit = LineLimit(2, window_s=10)
    assert [limit.allows("a", now) for now in (0.0, 1.0, 2.0, 3.0, 9.9)] == [0, 0, None, None, None]
    assert limit.allows("b", 3.0) == 0
    assert limit.allows("a", 10.0) == 3
    assert [limit.allows("a", now) for now in (11.0, 12.0)] == [0, None]
    assert limit.allows("a", 25.0) == 1
    for number in range(3_000):
        limit.allows(f"host {number}", 25.0)
    assert len(limit._written) <= 1_000


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    """What a server sets for its process is undone: other tests share it."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_traceback_has_no_local_variables(tmp_path: Path, as_json: bool, logging_as_it_was: None) -> None:
    """But it is there, in both formats."""
    path = tmp_path / "log"
    with path.open("w", encoding="utf-8") as stream:
        log = configure_log(stream, as_json=as_json)
        password = "hunter" + "2"
        try:
            [""].remove(password)
        except ValueError as error:
            structlog.get_logger("test").error("failed", exc_info=error)
        log.close()
    text = path.read_text(encoding="utf-8")
    assert "test_event_log.py" in text
    assert "ValueError" in text
    assert password not in text
    if as_json:
        event = json.loads(text)
        assert event["exception"][0]["exc_type"] == "ValueError"
