"""What is promised of the project as a whole: cheap imports, locks without addresses, nothing of one machine in it."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = ["run", "dev", "build", "java"]
HEAVY = {
    "altair", "jinja2", "numba", "numpy", "pandas", "prometheus_client", "py4j", "pyarrow", "pyspark", "vl_convert",
}  # fmt: skip


def pins(lock: str) -> set[str]:
    """What a lock file holds, as `name==version`."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    return {line.split()[0] for line in text.splitlines() if not line.startswith(" ")}


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:  # an unpacked archive, where all there is belongs to the project
        return [path for path in ROOT.rglob("*") if path.is_file() and ".venv" not in path.parts]
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


class TestImports:
    @pytest.mark.parametrize(
        "program",
        [
            "import kquota",
            "import kquota.pipeline",
            "import kquota.pipeline.spark.java",
            "import kquota.cli",
            "import kquota.cli; sys.argv = ['kquota', '--help']; kquota.cli.main()",
        ],
    )
    def test_the_core_loads_neither_spark_nor_what_comes_with_it(self, program: str) -> None:
        """Checked in a process of its own, at its very end, whatever it exits with."""
        report = "import atexit, sys; atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr)); "
        result = subprocess.run(
            [sys.executable, "-c", report + program], capture_output=True, text=True, check=True, cwd=ROOT
        )
        loaded = set(result.stderr.split())
        assert "kquota" in loaded
        assert not loaded & HEAVY


class TestLocks:
    @pytest.mark.parametrize("lock", LOCKS)
    def test_every_line_is_a_pin_or_a_hash_so_no_address_can_hide(self, lock: str) -> None:
        pin = r"[a-z0-9][a-z0-9.-]*==[0-9][a-z0-9.]*( ; [A-Za-z_ '\"!<>=.0-9()]+)? \\"
        sha = r"    --hash=sha256:[0-9a-f]{64}( \\)?"
        lines = (ROOT / "requirements" / f"{lock}.txt").read_text().splitlines()
        assert lines
        assert [line for line in lines if not re.fullmatch(f"{pin}|{sha}", line)] == []

    @pytest.mark.parametrize("lock", ["run", "build"])
    def test_what_runs_is_what_is_tested(self, lock: str) -> None:
        assert pins(lock)
        assert pins(lock) <= pins("dev")

    @pytest.mark.parametrize(
        "lock, group",
        [
            ("run", "project"),
            ("run", "spark"),
            ("run", "server"),
            ("run", "report"),
            ("dev", "dev"),
            ("build", "build"),
        ],
    )
    def test_the_locks_hold_what_pyproject_asks_for(self, lock: str, group: str) -> None:
        """A requirement that is added or raised without `make lock` fails here, not on a user's machine."""
        pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
        project = pyproject["project"]
        groups = {
            "project": project["dependencies"],
            **project["optional-dependencies"],
            **pyproject["dependency-groups"],
        }
        locked = {canonicalize_name(pinned.name): pinned.specifier for pinned in map(Requirement, sorted(pins(lock)))}
        for wanted in map(Requirement, (item for item in groups[group] if isinstance(item, str))):
            (pin,) = locked[canonicalize_name(wanted.name)]
            assert wanted.specifier.contains(pin.version), f"{wanted} is locked to {pin.version}"


class TestFiles:
    def test_no_tracked_file_names_a_registry_or_this_checkout(self) -> None:
        """Where packages come from, and where the checkout lies, is the business of the machine that builds."""
        # Put together from pieces, so that this file passes too.
        hosts = "|".join(["py" + "pi", "pythonhosted", "repo1", "maven", "npmjs", "golang", "crates"])
        # The address of Maven's schema is a name that every POM has to hold; nothing is fetched from it.
        registry = re.compile(
            rf"https?://(?!maven\.apache\.org/(?:POM|xsd)/)[a-z0-9.-]*(?:{hosts})[a-z0-9.-]*".encode()
        )
        checkout = str(ROOT).encode()
        found = []
        for path in tracked_files():
            content = path.read_bytes()
            found += [f"{path.relative_to(ROOT)}: {match.decode()}" for match in registry.findall(content)]
            if checkout in content and len(ROOT.parts) > 2:  # "/src" is no telling name
                found.append(f"{path.relative_to(ROOT)}: {ROOT}")
        assert found == []

    def test_the_licence_is_the_one_that_pyproject_names(self) -> None:
        pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
        text = (ROOT / "LICENSE").read_text()
        assert pyproject["project"]["license"] == "Apache-2.0"
        assert re.match(r"\s*Apache License\s+Version 2.0, January 2004", text)
        assert "END OF TERMS AND CONDITIONS" in text

    def test_the_version_is_the_same_everywhere(self) -> None:
        from kquota import __version__

        changelog = (ROOT / "CHANGELOG.md").read_text()
        assert __version__ == version("kquota")
        assert re.search(rf"^## \[?(?:Unreleased|{re.escape(__version__)})\b", changelog, re.MULTILINE)
