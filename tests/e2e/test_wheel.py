"""What users get who install the wheel without extras: everything that needs no Spark, and a word on the rest."""

import shutil
import subprocess
import sys
import venv
import zipfile
from email.parser import HeaderParser
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)],
        cwd=ROOT,
        check=True,
    )
    (built,) = folder.glob("*.whl")
    return built


def needed(requirements: list[str]) -> set[str]:
    """The names of all packages that these requirements lead to in the environment that runs the tests."""
    names: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        # An extra's requirements have a marker that is false where no extra is asked for.
        if name not in names and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            names.add(name)
            waiting += [Requirement(text) for text in distribution(name).requires or []]
    return names


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment with the wheel and exactly what its metadata asks for, copied from this one."""
    home = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        wanted = HeaderParser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist", [])
    for name in needed(wanted):
        package = distribution(name)
        for file in package.files or []:
            if ".." not in file.parts:  # programs, which lie outside of site-packages, are not needed
                target = site / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(package.locate_file(file)), target)
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", home, "install", "--quiet", "--no-deps", "--no-index", wheel],
        check=True,
    )
    return home / "bin"


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, cwd=program.parent)


class TestWheel:
    def test_it_holds_the_types_the_licence_and_the_sample(self, wheel: Path) -> None:
        names = set(zipfile.ZipFile(wheel).namelist())
        assert {"kquota/py.typed", "kquota/_sample/quotas.yaml"} <= names
        assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
        sample = {path.name for path in (ROOT / "examples" / "capture" / "sample").iterdir()}
        assert sample
        assert {name.removeprefix("kquota/_sample/") for name in names if name.startswith("kquota/_sample/")} >= sample

    def test_it_holds_nothing_but_the_package(self, wheel: Path) -> None:
        tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
        assert tops == {"kquota", next(top for top in tops if top.endswith(".dist-info"))}

    def test_without_extras_there_is_no_spark(self, installed: Path) -> None:
        result = run(installed / "python", "-c", "import pyspark")
        assert "No module named 'pyspark'" in result.stderr


class TestInstalled:
    def test_it_can_be_imported(self, installed: Path) -> None:
        result = run(installed / "python", "-c", "import kquota; print(kquota.__file__)")
        assert Path(result.stdout.strip()).is_relative_to(installed.parent)

    def test_help_works(self, installed: Path) -> None:
        result = run(installed / "kquota", "--help")
        assert result.returncode == 0, result.stderr
        assert "Usage: kquota" in result.stdout

    def test_analyze_says_which_extra_it_needs(self, installed: Path, tmp_path: Path) -> None:
        quotas = ROOT / "examples" / "quotas.yaml"
        log = tmp_path / "request.log"
        log.touch()
        result = run(
            installed / "kquota",
            *["analyze", "--log", str(log), "--quotas", str(quotas), "--out", str(tmp_path / "out")],
        )
        assert result.returncode == 1
        assert "pip install 'kquota[spark" in result.stderr
        assert "Traceback" not in result.stderr
