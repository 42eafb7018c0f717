"""Two jobs on one directory of results: neither takes the other's files, and what a dead one left is cleaned up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import gethostname
from typing import Any, Final

import msgspec
import pytest

from kquota.errors import KquotaError
from kquota.pipeline.dataset import lease
from kquota.pipeline.dataset.lease import DEAD_AFTER_S, BusyError, Lease
from kquota.pipeline.dataset.output_directory import MARKER, OutputDirectory
from tests.kit.eventually import eventually

PROGRAM: Final = """
import sys
from pathlib import Path
from socket import gethostname
from kquota.pipeline.dataset.output_directory import OutputDirectory

path, *tables = sys.argv[1:]
with OutputDirectory.existing(Path(path), *tables) as output:
    for table in tables:
        (output.staging / table).mkdir()
        (output.staging / table / "theirs.parquet").touch()
    print("writing", flush=True)
    sys.stdin.readline()
    for table in tables:
        output.publish(table)
"""
NS: Final = 10**9


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Results of an earlier run."""
    (tmp_path / MARKER).touch()
    (tmp_path / "summary.json").write_text("{}")
    return tmp_path


@contextmanager
def job(directory: Path, *tables: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is writing some tables; it ends when it gets a line."""
    command = [sys.executable, "-c", PROGRAM, str(directory), *tables]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "writing\n"
            yield process
        finally:
            process.kill()


def write(directory: Path, *tables: str) -> None:
    with OutputDirectory.existing(directory, *tables) as output:
        for table in tables:
            (output.staging / table).mkdir()
            (output.staging / table / "ours.parquet").touch()
            output.publish(table)


def names(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()} - {
        MARKER,
        "summary.json",
    }


def hidden(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.name.startswith(".")]


def test_jobs_that_write_other_tables_run_side_by_side(directory: Path) -> None:
    """A what-if while a sweep is under way: each cleans up its own alone."""
    with job(directory, "curve") as sweep:
        write(directory, "whatif")
        with pytest.raises(RuntimeError), OutputDirectory.existing(directory, "showback"):
            raise RuntimeError("fails")
        assert len(hidden(directory)) == 2
        sweep.communicate("\n")
        assert sweep.returncode == 0
    assert names(directory) == {"curve/theirs.parquet", "whatif/ours.parquet"}
    assert not hidden(directory)


def test_a_second_writer_of_a_table_is_refused_by_name(directory: Path) -> None:
    """Whoever replaces all tables writes each of them, too."""
    with job(directory, "curve", "whatif") as other:
        for tables in (("curve",), ("utilisation", "curve"), ()):
            with pytest.raises(BusyError) as caught, OutputDirectory.existing(directory, *tables):
                pass
            assert caught.value.exit_code == 1
            assert caught.value.writer.pid == other.pid
            assert f"(process {other.pid}) since 2" in str(caught.value)
            assert "counts as dead" not in str(caught.value)
        with pytest.raises(BusyError, match=r"the same tables \(curve, whatif\): try again when that job has ended"):
            write(directory)
        with pytest.raises(BusyError), OutputDirectory(directory, overwrite=True):
            pass
        other.communicate("\n")
    write(directory, "curve")
    assert names(directory) == {"curve/ours.parquet", "whatif/theirs.parquet"}


def test_two_first_runs_into_one_directory(tmp_path: Path) -> None:
    """It looks empty to both."""
    with OutputDirectory(tmp_path / "new") as output:
        with pytest.raises(BusyError), OutputDirectory(tmp_path / "new"):
            pass
        (output.staging / "usage").mkdir()
        output.publish("usage")
    assert not hidden(tmp_path / "new")


def test_what_came_in_between_is_not_replaced_unasked(tmp_path: Path) -> None:
    """A job that was made before another ended sees its results."""
    late = OutputDirectory(tmp_path / "new")
    with OutputDirectory(tmp_path / "new") as output:
        (output.staging / "usage").mkdir()
        output.publish("usage")
    with pytest.raises(KquotaError, match="--overwrite"), late:
        pass
    assert not hidden(tmp_path / "new")


def test_a_job_that_was_killed(directory: Path) -> None:
    """It blocks nobody, and what it left goes with the next run, whatever that writes."""
    with job(directory, "curve") as killed:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert len(hidden(directory)) == 2
        write(directory, "whatif")
        assert not hidden(directory)
        write(directory, "curve")
    assert names(directory) == {"curve/ours.parquet", "whatif/ours.parquet"}


def test_a_killed_job_that_nobody_has_waited_for(directory: Path) -> None:
    """In a container without an init process it stays a process for ever."""
    with job(directory, "curve") as killed:
        killed.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
        assert Path(f"/proc/{killed.pid}").exists()
        write(directory, "curve")


def test_a_table_that_was_being_replaced(directory: Path) -> None:
    """Killed between the old version's going and the new one's coming: the old one is back."""
    write(directory, "curve")
    with job(directory, "curve") as killed:
        killed.kill()
        killed.wait()
    (dead,) = (path for path in directory.glob(".staging-*") if path.is_dir())
    (directory / "curve").rename(dead / "old-curve")
    (dead / "removed-whatif").mkdir()
    write(directory, "showback")
    assert names(directory) == {"curve/ours.parquet", "showback/ours.parquet"}
    assert not (directory / "whatif").exists()


def announce(directory: Path, *, age_s: int, sign_s: int | None = None, **changes: object) -> Path:
    """A job that was announced so long ago, and gave a sign of life since; by default one of another machine."""
    staging = directory / ".staging-abc"
    writer = json.loads(msgspec.json.encode(lease.Writer.of_this_process(["curve"])))
    file = directory / ".staging-abc.json"
    file.write_text(json.dumps(writer | {"host": "elsewhere"} | changes))
    now_ns = file.stat().st_mtime_ns
    os.utime(file, ns=(now_ns - age_s * NS,) * 2)
    if sign_s is not None:
        staging.mkdir()
        os.utime(staging, ns=(now_ns - sign_s * NS,) * 2)
    return staging


def test_a_job_of_another_machine_goes_by_its_signs_of_life(directory: Path) -> None:
    """Its process ids say nothing here."""
    staging = announce(directory, age_s=10_000, sign_s=DEAD_AFTER_S - 60)
    with pytest.raises(BusyError, match=f"on elsewhere .* counts as dead {DEAD_AFTER_S} s after its last sign of life"):
        write(directory, "curve")
    write(directory, "whatif")
    assert staging.is_dir()
    os.utime(staging, ns=(staging.stat().st_mtime_ns - 120 * NS,) * 2)
    write(directory, "curve")
    assert not hidden(directory)


@pytest.mark.parametrize("changes", [{"pid_namespace": "pid:[1]"}, {"host": "elsewhere"}])
def test_a_container_on_this_machine_is_another_one(directory: Path, changes: dict[str, Any]) -> None:
    announce(directory, age_s=10, **changes)
    with pytest.raises(BusyError):
        write(directory, "curve")


@pytest.mark.parametrize("changes", [{"pid_started": "1"}, {"pid": 2**22 + 1}])
def test_another_process_with_the_same_number(directory: Path, changes: dict[str, Any]) -> None:
    """Numbers come again; the job that had it is dead, however lately it gave a sign."""
    announce(directory, age_s=0, sign_s=0, **({"host": gethostname()} | changes))
    write(directory, "curve")
    assert not hidden(directory)


def test_one_that_is_about_to_be_announced(directory: Path) -> None:
    """It will see this one, and be refused: it is neither waited for nor cleaned up."""
    (directory / ".staging-abc.json").touch()
    write(directory, "curve")
    assert hidden(directory) == [".staging-abc.json"]


def test_of_two_at_once_not_both_begin(directory: Path) -> None:
    """Who was announced later gives way, even to one that it sees before that one has looked."""
    staging = announce(directory, age_s=-5)
    write(directory, "curve")
    os.utime(directory / ".staging-abc.json", ns=((directory / ".staging-abc.json").stat().st_mtime_ns - 6 * NS,) * 2)
    with pytest.raises(BusyError):
        write(directory, "curve")
    assert hidden(directory) == [f"{staging.name}.json"]


def test_signs_of_life(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_BEAT_S", 0.01)
    with OutputDirectory.existing(directory, "curve") as output:
        os.utime(output.staging, (0, 0))
        eventually(lambda: output.staging.stat().st_mtime > 0, True)


def test_a_job_that_was_taken_for_dead(directory: Path) -> None:
    """It publishes nothing any more."""
    write(directory, "curve")
    with OutputDirectory.existing(directory, "curve") as output:
        (output.staging / "curve").mkdir()
        output.staging.with_name(f"{output.staging.name}.json").unlink()
        with pytest.raises(KquotaError, match="another has taken its place: run it again"):
            output.publish("curve")
    assert names(directory) == {"curve/ours.parquet"}


def test_what_two_steps_add_to_one_file(directory: Path) -> None:
    """The second one reads what the first has written."""
    program = PROGRAM.replace("    print", "    with output.updating():\n      print").replace("    sys", "      sys")
    program = program.replace("    for table in tables:\n        output.publish(table)\n", "")
    program += '      (output.path / "summary.json").write_text("1")\n'
    with subprocess.Popen(
        [sys.executable, "-c", program, str(directory), "curve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "writing\n"
        with OutputDirectory.existing(directory, "whatif") as output:
            other.stdin.write("\n")
            other.stdin.close()
            with output.updating():
                assert (directory / "summary.json").read_text() == "1"


def test_a_lease_is_let_go_where_its_folder_cannot_be_made(directory: Path) -> None:
    taken = Lease(directory, ["curve"])
    taken.staging.with_name(f"{taken.staging.name}.json").touch()
    with pytest.raises(FileExistsError):
        taken.acquire()
