"""The compiled meter where it is installed by somebody else."""

import shutil
import subprocess
import sys
from pathlib import Path

import kquota

PROGRAM = "from kquota.pipeline.simulation import compiled_meter as it; print(it.new_meter(3).size, it.__file__)"


def test_it_compiles_where_nothing_can_be_kept(tmp_path: Path) -> None:
    """As on a worker whose user may write neither to the package nor to a home."""
    package = tmp_path / "kquota"
    shutil.copytree(Path(kquota.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    not_a_folder = package / "pipeline" / "simulation" / "__pycache__"
    not_a_folder.touch()
    done = subprocess.run(
        [sys.executable, "-B", "-c", PROGRAM],
        env={"PYTHONPATH": str(tmp_path), "HOME": str(not_a_folder), "XDG_CACHE_HOME": str(not_a_folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    size, file = done.stdout.split()
    assert int(size) > 3
    assert Path(file).is_relative_to(tmp_path)
