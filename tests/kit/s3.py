"""An S3 server that checks signatures and does conditional puts: versitygw, built once from `s3_server/go.mod`."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.eventually import eventually
from tests.kit.not_run import not_run

__all__ = ["BUCKET", "KEY", "SECRET", "S3Server", "running_s3", "s3_program", "s3_server"]

MODULE = Path(__file__).parent / "s3_server"
KEY, SECRET = "test", "a secret of tests"
BUCKET = "bucket"


@dataclass(frozen=True)
class S3Server:
    """A server, and the folder that has its buckets: a file put there is an object at once."""

    endpoint: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """How users say where it is and who they are."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }


@pytest.fixture(scope="session")
def s3_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server's program."""
    go = shutil.which("go")
    if go is None:
        not_run("GO", "no Go was found on the path")
    fetched = subprocess.run([go, "mod", "download"], cwd=MODULE, capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        not_run("GO", f"the Go modules cannot be fetched:\n{fetched.stderr}")
    program = tmp_path_factory.mktemp("s3-program") / "versitygw"
    built = subprocess.run(
        [go, "build", "-trimpath", "-ldflags=-s -w", "-o", program, "github.com/versity/versitygw/cmd/versitygw"],
        cwd=MODULE,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return program


@contextmanager
def running_s3(program: Path, folder: Path) -> Iterator[S3Server]:
    """A server with an empty bucket."""
    (folder / BUCKET).mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [program, "--quiet", "--port", f"127.0.0.1:{port}", "posix", folder],
        env={**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET},
        stdout=subprocess.DEVNULL,
    )

    def answers() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    try:
        eventually(answers, True)
        yield S3Server(f"http://127.0.0.1:{port}", folder)
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="session")
def s3_server(s3_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One for all tests of the session: each takes a prefix of its own in :data:`BUCKET`."""
    with running_s3(s3_program, tmp_path_factory.mktemp("s3")) as server:
        yield server
