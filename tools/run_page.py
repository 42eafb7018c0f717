"""Runs the commands and programs of a page of the documentation, and compares what they print with the page.

    python tools/run_page.py docs/tour.md          say where they differ
    python tools/run_page.py docs/tour.md --write  write what was printed into the page

In a block of `console` a line that begins with `$ ` is a command (continued by a backslash), the lines below it are
what it prints; `...` alone on a line is any number of lines. A block of commands alone shows nothing of what
they print. All commands run in one shell, in a folder of their own that has the examples of the checkout, and may fail
only where the page shows an error. A block of `python` runs as it is; a block of `text` right below it is what it
prints. Other blocks are not run, and neither is one below `<!-- not run: WHY -->`. What the commands need and the page
does not show is in comments: `<!-- before`, commands line by line, `-->`.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import SequenceMatcher, unified_diff
from functools import partial
from pathlib import Path
from typing import IO, Final

ROOT: Final = Path(__file__).parents[1]
ELISION: Final = "..."
CHANGES_PENDING: Final = 3
"""What `kquota plan` ends with where there is something to do."""
SERVER: Final = "127.0.0.1:9092"
"""The address of the server in pages: another, free one is used, and shown as this."""
NOISE: Final = ("WARNING: Using incubator modules: jdk.incubator.vector",)
"""What some Javas say at their start."""
BLOCK: Final = re.compile(
    r"^<!-- before\n(?P<before>.*?)^-->$"
    r"|^<!-- not run: .*? -->\n```.*?^```$"
    r"|^```(?P<kind>console|python)\n(?P<body>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a page, as it is written, and the lines that it should print."""

    text: str
    expected: list[str] = field(default_factory=list)

    @property
    def is_background(self) -> bool:
        return self.text.rstrip().endswith("&")


def console_commands(block: str) -> list[Command]:
    """Those of a block of `console`, in their order."""
    found: list[Command] = []
    is_continued = False
    for line in block.splitlines():
        if is_continued:
            found[-1] = Command(f"{found[-1].text}\n{line}")
        elif line.startswith("$ "):
            found.append(Command(line.removeprefix("$ ")))
        else:
            found[-1].expected.append(line)
            continue
        is_continued = line.endswith("\\")
    return found


def merged(expected: list[str], printed: list[str]) -> list[str]:
    """What a page should say of `printed`: all of it, or between elisions as many lines as `expected` has there.

    Lines before the first elision begin the output, those after the last one end it; others are looked for where they
    fit best.
    """
    if ELISION not in expected:
        return printed
    parts: list[list[str]] = [[]]
    for line in expected:
        if line == ELISION:
            parts.append([])
        else:
            parts[-1].append(line)
    first, *middle, last = parts
    shown, position = [*printed[: len(first)], ELISION], len(first)
    for lines in middle:
        position = max(range(position, len(printed) - len(lines) + 1), key=partial(likeness, lines, printed))
        shown += [*printed[position : position + len(lines)], ELISION]
        position += len(lines)
    return shown + printed[max(position, len(printed) - len(last)) :] if last else shown


def likeness(lines: list[str], printed: list[str], position: int) -> float:
    """How much `lines` are like those at `position`, from 0 to 1."""
    there = "\n".join(printed[position : position + len(lines)])
    return SequenceMatcher(None, "\n".join(lines), there, autojunk=False).ratio()


class Shell:
    """One shell for all commands of a page. Standard error goes where standard output goes."""

    END: Final = "end of a command:"

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._server = f"127.0.0.1:{free.getsockname()[1]}"
        own = {name: value for name, value in os.environ.items() if not name.startswith(("KQUOTA_", "PYTHON", "SPARK"))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env={**own, "PATH": path, "KQUOTA_LISTEN": self._server},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: Command) -> tuple[list[str], int]:
        """The lines that it prints, and its exit code. One in the background is waited for until it has said enough."""
        stdin, stdout = self._streams()
        text = command.text.replace(SERVER, self._server)
        # What reads standard input must not read the commands; `echo` begins a line where the last one has no end.
        stdin.write(f"{{ {text}\n}} </dev/null\nlast_code=$?\necho\necho {self.END} $last_code\n")
        stdin.flush()
        lines: list[str] = []
        code: int | None = None
        for line in stdout:
            printed = line.rstrip().replace(self._server, SERVER)
            if printed.startswith(self.END):
                code = int(printed.removeprefix(self.END))
                if lines and not lines[-1]:
                    lines.pop()
            elif printed not in NOISE:
                lines.append(printed)
            if code is not None and (not command.is_background or len(lines) >= len(command.expected)):
                return lines, code
        raise EOFError(f"the shell ended at: {command.text}")

    def close(self) -> None:
        """End the shell and what runs in it."""
        stdin, stdout = self._streams()
        stdin.write("kill $(jobs -p) 2>/dev/null; wait\nexit\n")
        stdin.close()
        stdout.read()
        self._process.wait()
        stdout.close()

    def _streams(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout


@contextmanager
def opened_shell() -> Iterator[Shell]:
    """A shell in a folder that has the examples, and is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="kquota-page-") as name:
        shutil.copytree(ROOT / "examples", Path(name) / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        shell = Shell(Path(name))
        try:
            yield shell
        finally:
            shell.close()


def run_page(text: str, shell: Shell) -> str:
    """The page with what its commands print now.

    :raises RuntimeError: a command failed, and the page does not show it.
    """

    def run(command: Command) -> list[str]:
        lines, code = shell.run(command)
        is_shown = any(": error: " in line or line.startswith("kquota: ") for line in command.expected)
        if code not in (0, CHANGES_PENDING) and not is_shown:
            printed = "\n".join(lines)
            raise RuntimeError(f"exit code {code} of: {command.text}\n{printed}")
        return merged(command.expected, lines)

    def block(match: re.Match[str]) -> str:
        if match["before"] is not None:
            run(Command(match["before"]))
        kind, body, output = match.group("kind", "body", "output")
        if kind is None:
            return match[0]
        if kind == "console":
            commands = [(one, run(one)) for one in console_commands(body)]
            if not any(one.expected for one, _ in commands):
                return match[0]
            lines = [line for one, printed in commands for line in (f"$ {one.text}", *printed)]
            return "```console\n" + "".join(f"{line}\n" for line in lines) + match[0][match[0].index("```\n", 3) :]
        # Spark says on standard error what it does; it is of interest where the program fails.
        program = f"python - 2> errors.txt <<'END_OF_PROGRAM' || {{ cat errors.txt; false; }}\n{body}END_OF_PROGRAM"
        printed = run(Command(program, (output or "").splitlines()))
        if output is None:
            return match[0]
        return f"```python\n{body}```\n\n```text\n" + "".join(f"{line}\n" for line in printed) + "```\n"

    return BLOCK.sub(block, text)


def main() -> int:
    is_written = "--write" in sys.argv[1:]
    differing = 0
    for name in [one for one in sys.argv[1:] if not one.startswith("-")]:
        page = Path(name)
        before = page.read_text(encoding="utf-8")
        with opened_shell() as shell:
            after = run_page(before, shell)
        if is_written:
            page.write_text(after, encoding="utf-8")
        elif after != before:
            differing += 1
            print("\n".join(unified_diff(before.splitlines(), after.splitlines(), name, "as it runs", lineterm="")))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
