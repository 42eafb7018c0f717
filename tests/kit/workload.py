"""Client programs of six kinds against any bootstrap address, and what is done to the cluster while they run.

The programs are those of tests/real/clients; README.md there has their arguments. Progress is what their outputs say:
nothing here waits for a time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from examples.capture.jars import UTF8_ENVIRONMENT, java
from tests.kit.log_check import Line, read_lines

ROOT: Final = Path(__file__).parents[2]
JAVA: Final = ROOT / "tests" / "real" / "clients" / "WorkloadClient.java"
PYTHON: Final = {"librdkafka": "confluent", "kafka-python": "kafka_python", "aiokafka": "aio_kafka"}
GO: Final = {"franz-go": "workload-franz", "sarama": "workload-sarama"}
CLIENTS: Final = ("java", *PYTHON, *GO)
DEADLINE_S: Final = 240.0


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the jars are, which also choose the version of the Java clients, and the folders with compiled programs."""

    jars: Path
    go: Path
    classes: Path

    @classmethod
    def build(cls, jars: Path, go: Path, classes: Path) -> Self:
        """Compile the Java program into the folder ``classes``; ``go`` holds the programs of `tests.kit.go_programs`.

        Raises CalledProcessError where it does not compile.
        """
        compiler = [str(java()), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        path = ":".join(map(str, jars.glob("*.jar")))
        subprocess.run([*compiler, "-cp", path, "-d", classes, JAVA], check=True, env=UTF8_ENVIRONMENT)
        return cls(jars, go, classes)

    def command(self, client: str, settings: Mapping[str, str]) -> list[str]:
        """The command that runs one of `CLIENTS`."""
        arguments = [f"{key}={value}" for key, value in settings.items()]
        if client == "java":
            flags = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
            return [str(java()), *flags, "-cp", f"{self.classes}:{self.jars}/*", JAVA.stem, *arguments]
        if client in PYTHON:
            return [sys.executable, "-m", f"tests.real.clients.{PYTHON[client]}", *arguments]
        return [str(self.go / GO[client]), *arguments]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a program counted: records and bytes of values acknowledged or read, those that failed, and why."""

    records: int
    bytes: int
    seconds: float
    failed: int
    errors: Mapping[str, int]


class ClientProgram:
    """A running client program; killed at the end of the ``with`` where it still runs.

    Its files in ``folder`` are called as its client id: ``.lines`` (its output), ``.json`` (its summary), ``.err``.
    """

    def __init__(self, programs: Programs, client: str, folder: Path, settings: Mapping[str, object]) -> None:
        """Start it. Of the settings, ``output`` is added; ``client.id`` is needed."""
        self.name = str(settings["client.id"])
        self.output = folder / f"{self.name}.lines"
        self._summary = folder / f"{self.name}.json"
        self._errors = folder / f"{self.name}.err"
        self._counted = 0
        self._position = 0
        given = {key: str(value) for key, value in settings.items()}
        command = programs.command(client, {**given, "output": str(self.output)})
        with self._summary.open("wb") as summary, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=summary, stderr=errors, env=UTF8_ENVIRONMENT
            )

    def count(self) -> int:
        """How many lines it has written so far."""
        if self.output.exists():
            with self.output.open("rb") as lines:
                lines.seek(self._position)
                more = lines.read()
            self._position += len(more)
            self._counted += more.count(b"\n")
        return self._counted

    def lines(self) -> list[Line]:
        return read_lines(self.output) if self.output.exists() else []

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def summary(self) -> Summary:
        """Of one that has ended by itself.

        :raises AssertionError: it ended without one.
        """
        text = self._summary.read_text(encoding="utf-8")
        assert text, f"{self.name} ended with {self.returncode}:\n{self.last_errors()}"
        return Summary(**json.loads(text))

    def last_errors(self, characters: int = 4000) -> str:
        """The end of what it wrote on standard error."""
        return self._errors.read_text(encoding="utf-8", errors="replace")[-characters:]

    def stop(self) -> None:
        """End it, whatever it is doing: its lines are whole but for the last one."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done once so many records have been acknowledged to all producers of a run together."""

    at: int
    name: str
    action: Callable[[], Any]


def run_to_end(
    programs: Sequence[ClientProgram], *, faults: Sequence[Fault] = (), deadline_s: float = DEADLINE_S
) -> list[Summary]:
    """Wait until all have ended, and meanwhile do what is due, in the order given; progress is that of all together.

    An action may take its time (a broker that restarts): the programs go on meanwhile.
    :raises AssertionError: a program ended without a summary, or did not end in time, or a fault never came due.
    """
    deadline = time.monotonic() + deadline_s
    waiting = list(faults)
    while any(program.returncode is None for program in programs) or waiting:
        progress = sum(program.count() for program in programs)
        ended = all(program.returncode is not None for program in programs)
        if waiting and progress >= waiting[0].at:
            waiting.pop(0).action()
            continue
        states = "\n".join(
            f"{one.name}: {one.count()} lines, {one.returncode}\n{one.last_errors()}" for one in programs
        )
        assert not (ended and waiting), f"ended before {[fault.name for fault in waiting]}:\n{states}"
        assert time.monotonic() < deadline, f"not ended after {deadline_s} s:\n{states}"
        time.sleep(0.02)
    return [program.summary() for program in programs]


def read_until(programs: Sequence[ClientProgram], records: int, *, deadline_s: float = DEADLINE_S) -> list[Line]:
    """Wait until consumers together have read so many different records, and end them.

    What they read, in no order: members of a group may read a record again after a rebalance.
    :raises AssertionError: they did not in time, or one ended.
    """
    deadline = time.monotonic() + deadline_s

    def read() -> list[Line]:
        return [line for program in programs for line in program.lines()]

    while sum(program.count() for program in programs) < records or len(places(read())) < records:
        states = "\n".join(f"{one.name}: {one.count()} lines\n{one.last_errors()}" for one in programs)
        assert time.monotonic() < deadline, f"not {records} records after {deadline_s} s:\n{states}"
        assert not any(program.returncode for program in programs), states
        time.sleep(0.05)
    for program in programs:
        program.stop()
    return read()


def places(lines: Sequence[Line]) -> set[tuple[int, int]]:
    """Partition and offset of each."""
    return {(line.partition, line.offset) for line in lines}
