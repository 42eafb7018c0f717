"""A Spark cluster on this machine: a master and its workers, each a process of its own, from PySpark's own jars."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.request import urlopen

import pyspark

from kquota.pipeline.spark.java import ensure_java

__all__ = ["SPARK_HOME", "SparkCluster", "running_cluster", "running_connect_server", "spark_environment"]

T = TypeVar("T")
Process = subprocess.Popen[bytes]

SPARK_HOME: Final = Path(pyspark.__file__).parent

_HOST: Final = "127.0.0.1"
_START_S: Final = 120.0
_STOP_S: Final = 30.0
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_CONNECT: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
_CONNECT_URL: Final = re.compile(r"Spark Connect server started at: \S+:(\d+)")
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
# The system chooses the ports (0), and the master's log tells them.
_ANY_PORT: Final = ("--host", _HOST, "--port", "0", "--webui-port", "0")
_URL: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_PAGE: Final = re.compile(r"Bound MasterWebUI to .* and started at (http://\S+)")


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """A running cluster, whose files are in `folder`; `url` is what ``--master`` takes."""

    url: str
    page: str
    folder: Path

    def state(self) -> Any:
        """What the master says of its workers and of what ran on them."""
        with urlopen(f"{self.page}/json/", timeout=30) as answer:
            return json.load(answer)

    def logs(self) -> str:
        """The last lines of the master, of the workers, and of what these ran."""
        return _last_lines(self.folder)


def spark_environment() -> dict[str, str]:
    """This process's environment, of which nothing speaks of another Spark."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return kept | {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": _HOST, "JAVA_HOME": str(ensure_java())}


@contextlib.contextmanager
def running_cluster(folder: Path, *, workers: int) -> Iterator[SparkCluster]:
    """A master and so many workers with a core and a gigabyte each; all end at the end, with what they started.

    :raises AssertionError: it did not start; the message has the logs.
    """
    folder.mkdir(parents=True)
    with contextlib.ExitStack() as ends:
        running = [ends.enter_context(_process(folder, "master", [_MASTER, *_ANY_PORT]))]

        def wait_for(ask: Callable[[], T | None]) -> T:
            """The answer, as soon as there is one."""
            give_up = time.monotonic() + _START_S
            while (found := ask()) is None:
                ended = any(process.poll() is not None for process in running)
                assert not ended, f"a part of the cluster ended\n{_last_lines(folder)}"
                assert time.monotonic() < give_up, f"the cluster did not start\n{_last_lines(folder)}"
                time.sleep(0.1)
            return found

        def told(what: re.Pattern[str]) -> str:
            return wait_for(lambda: what.search((folder / "master.log").read_text()))[1]

        cluster = SparkCluster(told(_URL), told(_PAGE), folder)
        for number in range(workers):
            name = f"worker-{number}"
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / name)]
            running.append(ends.enter_context(_process(folder, name, [_WORKER, *_ANY_PORT, *size, cluster.url])))
        wait_for(lambda: cluster.state()["aliveworkers"] == workers or None)
        yield cluster


@contextlib.contextmanager
def running_connect_server(folder: Path) -> Iterator[str]:
    """A Spark Connect server with two cores; gives its URL. Its workers have this Python's packages."""
    settings = {
        "spark.connect.grpc.binding.address": _HOST,
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": _HOST,
        "spark.driver.bindAddress": _HOST,
        "spark.ui.enabled": "false",
    }
    command = ["org.apache.spark.deploy.SparkSubmit", "--class", _CONNECT, "--master", "local[2]"]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    log = folder / "connect.log"
    with _process(folder, "connect", [*command, "spark-internal"], memory="1g") as process:
        give_up = time.monotonic() + _START_S
        while (started := _CONNECT_URL.search(log.read_text())) is None:
            assert process.poll() is None, f"the server ended\n{_last_lines(folder)}"
            assert time.monotonic() < give_up, f"the server did not start\n{_last_lines(folder)}"
            time.sleep(0.1)
        yield f"sc://{_HOST}:{started[1]}"


@contextlib.contextmanager
def _process(folder: Path, name: str, command: Sequence[str], *, memory: str = "256m") -> Iterator[Process]:
    """A daemon of Spark's, in a session of its own, so that all it starts can be ended with it."""
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [SPARK_HOME / "bin" / "spark-class", *command],
            cwd=folder,
            env=spark_environment() | {"SPARK_DAEMON_MEMORY": memory, "PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last_lines(folder: Path, count: int = 20) -> str:
    files = sorted([*folder.glob("*.log"), *folder.glob("worker-*/*/*/stderr")])
    texts = ((file, file.read_text(errors="replace").splitlines()[-count:]) for file in files)
    return "\n".join(f"--- {file.relative_to(folder)}\n" + "\n".join(lines) for file, lines in texts)
