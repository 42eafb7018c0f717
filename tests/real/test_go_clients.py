"""Go's Kafka clients see no difference between our server and a real Kafka: franz-go's kadm, and sarama."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.line_program import LineProgram
from tests.real.both_servers import Server, assert_same_answers
from tests.real.client_script import QUESTIONS, Question, changes, reads


@pytest.mark.parametrize("client", ["kadm", "sarama"])
def test_a_go_client_gets_the_same_answers(
    both: tuple[Server, Server], go_programs: Path, client: str, tmp_path: Path
) -> None:
    """Every filter, every refusal, validating alone, and what is left in the end."""

    @contextlib.contextmanager
    def connect(server: Server) -> Iterator[Callable[[Question], Any]]:
        command = [str(go_programs / client), server.address]
        with LineProgram(command, errors=tmp_path / f"{server.name}.err") as program:
            yield program.ask

    assert_same_answers(both, connect, QUESTIONS, changes=changes, reads=reads)
