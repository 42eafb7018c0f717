"""The helper programs in C, compiled where a benchmark runs: into `build/`, again when their source changes."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Final

__all__ = ["CompilerMissingError", "compiled"]

SOURCES: Final = Path(__file__).parent / "c"
BUILD: Final = Path(__file__).parents[1] / "build" / "benchmarks" / "c"
_FLAGS: Final = ("-O2", "-Wall", "-Wextra")


class CompilerMissingError(RuntimeError):
    """There is no C compiler here, or it does not take the source; the message holds what it says."""


def compiled(name: str, *flags: str) -> Path:
    """The program of `c/NAME.c`, made with further flags such as ``-lssl``.

    :raises CompilerMissingError: it cannot be made.
    """
    source = SOURCES / f"{name}.c"
    mark = hashlib.sha256(source.read_bytes() + repr(flags).encode()).hexdigest()[:12]
    program = BUILD / f"{name}-{mark}"
    if program.exists():
        return program
    compiler = shutil.which("cc")
    if compiler is None:
        raise CompilerMissingError("the benchmark needs a C compiler: there is no cc")
    BUILD.mkdir(parents=True, exist_ok=True)
    made = BUILD / f"{program.name}.{mark}.new"
    done = subprocess.run(
        [compiler, *_FLAGS, "-o", str(made), str(source), *flags], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise CompilerMissingError(done.stderr)
    made.replace(program)
    return program
