"""Go's Kafka clients see no difference between our server and a real Kafka: franz-go's kadm, and sarama."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.line_program import LineProgram
from tests.kit.not_run import not_run
from tests.real.both_servers import Server, assert_same_answers
from tests.real.client_script import QUESTIONS, Question, changes, reads

MODULE = Path(__file__).parent / "go"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the clients, built from `go.mod`'s versions."""
    go = shutil.which("go")
    if go is None:
        not_run("GO", "no Go was found on the path")
    fetched = subprocess.run([go, "mod", "download"], cwd=MODULE, capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        not_run("GO", f"the Go modules cannot be fetched:\n{fetched.stderr}")
    folder = tmp_path_factory.mktemp("go-clients")
    command = [go, "build", "-o", f"{folder}/", "./..."]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
    built = subprocess.run(command, cwd=MODULE, capture_output=True, text=True, env=environment, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.parametrize("client", ["kadm", "sarama"])
def test_a_go_client_gets_the_same_answers(
    both: tuple[Server, Server], programs: Path, client: str, tmp_path: Path
) -> None:
    """Every filter, every refusal, validating alone, and what is left in the end."""

    @contextlib.contextmanager
    def connect(server: Server) -> Iterator[Callable[[Question], Any]]:
        command = [str(programs / client), server.address]
        with LineProgram(command, errors=tmp_path / f"{server.name}.err") as program:
            yield program.ask

    assert_same_answers(both, connect, QUESTIONS, changes=changes, reads=reads)
