"""Kafka's own Java Admin sees no difference between our server and a real Kafka."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.kit.kafka import NEW, needs_compiler, needs_kafka
from tests.kit.line_program import LineProgram, java_command
from tests.real.both_servers import Server, assert_same_answers
from tests.real.client_script import QUESTIONS, Question, changes, reads

ADMIN = Path(__file__).parent / "java" / "AdminLines.java"


def test_the_java_admin_gets_the_same_answers(both: tuple[Server, Server], tmp_path: Path) -> None:
    """Every filter, every refusal with its class and text, validating alone, and what is left in the end."""
    jars = needs_kafka(NEW)
    needs_compiler()

    @contextlib.contextmanager
    def connect(server: Server) -> Iterator[Callable[[Question], Any]]:
        command = java_command(jars, ADMIN, server.address)
        with LineProgram(command, errors=tmp_path / f"{server.name}.err") as program:
            yield program.ask

    assert_same_answers(both, connect, QUESTIONS, changes=changes, reads=reads)
