"""What `tools/setup.sh` decides, with a Python that only writes down what it is asked to do."""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "setup.sh"

FAKE_PYTHON = """#!/bin/sh
case "$1 $2" in
*ensurepip*) [ -z "{unfit}" ] || { echo "{unfit}" >&2; exit 1; } ;;
*base_prefix*) echo "{name}" ;;
"-c "*) echo "Python 3.12.0" ;;
"-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && echo "venv by {name}" >> "$LOG" ;;
"-m pip") shift 2; echo "$*" >> "$LOG"; case "$*" in *java.txt) : > "$JAVA" ;; esac ;;
"-m kquota.pipeline.spark.java") [ -e "$JAVA" ] ;;
*) exit 99 ;;
esac
"""


@dataclass
class Machine:
    """A checkout and a folder of programs. ``calls`` is what the script asked of Python in its last run."""

    root: Path
    calls: list[str] = field(default_factory=list)
    said: str = ""

    @property
    def checkout(self) -> Path:
        return self.root / "check out"

    def add_python(self, name: str, unfit: str = "") -> Path:
        path = self.root / "bin" / name
        path.write_text(FAKE_PYTHON.replace("{name}", name).replace("{unfit}", unfit))
        path.chmod(0o755)
        return path

    def setup(self, kind: str = "run", *, exit_code: int = 0, environment: Mapping[str, str] = {}) -> list[str]:
        log = self.root / "log"
        log.unlink(missing_ok=True)
        sh = shutil.which("sh")
        assert sh is not None
        result = subprocess.run(
            [sh, "tools/setup.sh", kind],
            cwd=self.checkout,
            env={"PATH": str(self.root / "bin"), "LOG": str(log), "JAVA": str(self.root / "java"), **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        self.said = result.stderr
        assert result.returncode == exit_code, result.stderr
        assert result.stdout == ""
        self.calls = log.read_text().splitlines() if log.exists() else []
        return self.calls


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with Java and the ordinary tools, without Python, and a checkout in a folder with a space."""
    made = Machine(tmp_path)
    (made.checkout / "tools").mkdir(parents=True)
    (made.checkout / "requirements").mkdir()
    shutil.copy(SCRIPT, made.checkout / "tools")
    (made.checkout / "pyproject.toml").write_text("[project]\n")
    for lock in ["build", "run", "dev", "java"]:
        (made.checkout / "requirements" / f"{lock}.txt").write_text(f"{lock}==1\n")
    (tmp_path / "bin").mkdir()
    for tool in ["sh", "cat", "cmp", "cp", "dirname", "head", "mkdir", "rm", "sed"]:
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / "bin" / tool).symlink_to(found)
    (tmp_path / "java").touch()
    return made


def installs(lock: str) -> list[str]:
    return [
        "install --quiet --require-hashes --requirement requirements/build.txt",
        f"install --quiet --require-hashes --no-build-isolation --use-pep517 --requirement requirements/{lock}.txt",
        "install --quiet --no-deps --no-build-isolation --editable .",
    ]


class TestPython:
    def test_the_newest_tried_version_is_taken(self, machine: Machine) -> None:
        for name in ["python3", "python3.11", "python3.12"]:
            machine.add_python(name)
        assert machine.setup()[0] == "venv by python3.12"

    def test_one_that_is_too_old_or_has_no_venv_is_passed_over(self, machine: Machine) -> None:
        machine.add_python("python3.13", unfit="is Python 3.13 without venv")
        machine.add_python("python3.12", unfit="pyenv: python3.12: command not found")
        machine.add_python("python3")
        assert machine.setup()[0] == "venv by python3"

    def test_where_none_fits_each_is_named_with_its_reason(self, machine: Machine) -> None:
        machine.add_python("python3", unfit="is Python 3.9")
        assert machine.setup(exit_code=1) == []
        assert "kquota needs Python 3.11 or newer, with venv:" in machine.said
        assert "python3.12 is not there" in machine.said
        assert f"{machine.root}/bin/python3 is Python 3.9" in machine.said

    def test_the_one_that_is_asked_for_is_taken_and_no_other(self, machine: Machine) -> None:
        machine.add_python("python3.12")
        chosen = machine.add_python("my python")
        assert machine.setup(environment={"PYTHON": str(chosen)})[0] == "venv by my python"
        machine.setup(environment={"PYTHON": "python4"}, exit_code=1)
        assert "python4 is not there" in machine.said

    def test_asking_for_another_one_builds_the_environment_anew(self, machine: Machine) -> None:
        machine.add_python("python3.12")
        other = machine.add_python("python3.11")
        machine.setup()
        assert machine.setup(environment={"PYTHON": str(other)}) == ["venv by python3.11", *installs("run")]
        assert machine.setup(environment={"PYTHON": str(other)}) == []


class TestPackages:
    @pytest.fixture(autouse=True)
    def python(self, machine: Machine) -> Path:
        return machine.add_python("python3")

    def test_the_first_run_installs_what_is_locked(self, machine: Machine) -> None:
        assert machine.setup() == ["venv by python3", *installs("run")]

    def test_a_second_run_does_nothing(self, machine: Machine) -> None:
        machine.setup()
        assert machine.setup() == []
        assert machine.said == ""

    @pytest.mark.parametrize("changed", ["pyproject.toml", "requirements/run.txt", "requirements/build.txt"])
    def test_a_changed_lock_is_installed_and_a_touched_one_is_not(self, machine: Machine, changed: str) -> None:
        machine.setup()
        (machine.checkout / changed).touch()
        assert machine.setup() == []
        (machine.checkout / changed).write_text("changed\n")
        assert machine.setup() == installs("run")

    def test_the_environment_for_tests_serves_for_running(self, machine: Machine) -> None:
        machine.setup()
        assert machine.setup("dev") == installs("dev")
        assert machine.setup("run") == []

    def test_an_installation_that_broke_off_is_taken_up_again(self, machine: Machine, python: Path) -> None:
        machine.setup()
        inside = machine.checkout / ".venv" / "bin" / "python"
        good = inside.read_text()
        inside.write_text(good.replace('"-m pip")', '"-m pip") exit 3;;\nnever)'))
        (machine.checkout / "requirements" / "run.txt").write_text("changed\n")
        machine.setup(exit_code=3)
        (machine.checkout / "requirements" / "run.txt").write_text("run==1\n")
        inside.write_text(good)
        assert machine.setup() == installs("run")

    def test_a_checkout_that_moved_gets_a_new_environment(self, machine: Machine) -> None:
        """The programs in an environment hold its path."""
        machine.setup()
        moved = Machine(machine.root / "elsewhere")
        moved.root.mkdir()
        for name in ["bin", "java", "check out"]:
            shutil.move(machine.root / name, moved.root / name)
        assert moved.setup() == ["venv by python3", *installs("run")]

    def test_an_environment_whose_python_is_gone_is_built_anew(self, machine: Machine) -> None:
        machine.setup()
        (machine.checkout / ".venv" / "bin" / "python").unlink()
        assert machine.setup() == ["venv by python3", *installs("run")]

    def test_settings_for_other_environments_are_dropped(self, machine: Machine, python: Path) -> None:
        python.write_text(python.read_text().replace("#!/bin/sh", '#!/bin/sh\necho "$PIP_USER$PIP_TARGET" >> "$LOG"'))
        assert set(machine.setup(environment={"PIP_TARGET": "x", "PIP_USER": "1"})) >= {"0"}
        assert "1x" not in machine.calls


class TestJava:
    def test_one_is_added_where_there_is_none_and_that_is_said(self, machine: Machine) -> None:
        machine.add_python("python3")
        (machine.root / "java").unlink()
        added = "install --quiet --require-hashes --requirement requirements/java.txt"
        assert machine.setup() == ["venv by python3", *installs("run"), added]
        assert "No Java 17 or 21 was found" in machine.said
        assert machine.setup() == []
