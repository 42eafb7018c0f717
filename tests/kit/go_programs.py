"""The clients in Go, built once per session from `go.mod`'s versions."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.not_run import not_run

MODULE = Path(__file__).parents[1] / "real" / "go"


@pytest.fixture(scope="session")
def go_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the programs, each called as its package."""
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
