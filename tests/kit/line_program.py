"""Programs in other languages that a test talks to: one line of JSON in, one line out."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from examples.capture.jars import UTF8_ENVIRONMENT, java

__all__ = ["LineProgram", "java_command"]


def java_command(jars: Path, program: str | Path, *arguments: str) -> list[str]:
    """The command that runs a class of the jars, or a source file with them."""
    # These live for seconds: the second compiler would cost more than it gains.
    flags = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8"]
    return [str(java()), *flags, "-cp", f"{jars}/*", str(program), *arguments]


class LineProgram:
    """A running program that answers each line of JSON on its standard input with one on its standard output."""

    def __init__(self, command: Sequence[str], *, errors: Path) -> None:
        """Start it; what it writes on standard error goes into the file ``errors``."""
        self._errors = errors
        with errors.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                encoding="utf-8",
                env=UTF8_ENVIRONMENT,
            )

    def ask(self, question: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            line = ""
        else:
            line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the program ended at {question}:\n{self._errors.read_text(encoding='utf-8')}")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """End of input ends the program; an exception here ends it at once."""
        if exception[0] is not None:
            self._process.kill()
        self._process.communicate()
