"""Where results may be written, and what happens to what is there."""

from pathlib import Path

import pytest

from kquota.errors import InputError
from kquota.pipeline.dataset.output_directory import MARKER, OutputDirectory
from kquota.pipeline.dataset.tables import OCCASIONAL, TABLES


def contents(path: Path) -> dict[str, str]:
    return {str(file.relative_to(path)): file.read_text() for file in path.rglob("*") if file.is_file()}


def write(path: Path, *, text: str, overwrite: bool = False) -> None:
    with OutputDirectory(path, overwrite=overwrite) as output:
        (output.staging / "usage").mkdir()
        (output.staging / "usage" / "a.parquet").write_text(text)
        output.publish("usage")
        output.remove_others(["usage"])


def test_a_missing_or_empty_directory_is_taken(tmp_path: Path) -> None:
    """Results go into a new directory; nothing of the staging is left."""
    write(tmp_path / "new" / "deeper", text="1")
    assert contents(tmp_path / "new" / "deeper").keys() == {MARKER, "usage/a.parquet"}
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty", text="1")


def test_workers_find_the_staging_folder_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their current directory is another."""
    monkeypatch.chdir(tmp_path)
    output = OutputDirectory(Path("out"))
    assert output.path == Path("out")
    assert output.staging.parent == tmp_path / "out"


def test_our_own_results_need_overwrite(tmp_path: Path) -> None:
    """Earlier results are replaced only when asked for."""
    write(tmp_path / "out", text="1")
    with pytest.raises(InputError, match="--overwrite"):
        write(tmp_path / "out", text="2")
    assert contents(tmp_path / "out")["usage/a.parquet"] == "1"
    write(tmp_path / "out", text="2", overwrite=True)
    assert contents(tmp_path / "out")["usage/a.parquet"] == "2"


@pytest.mark.parametrize("foreign", ["thesis.txt", "usage2/a", "summary.json.bak"])
@pytest.mark.parametrize("ours", [False, True])
def test_foreign_content_is_always_refused(tmp_path: Path, foreign: str, ours: bool) -> None:
    """A directory with anything else in it is refused, also with overwrite, and not touched."""
    out = tmp_path / "out"
    if ours:
        write(out, text="1")
    (out / foreign).parent.mkdir(parents=True, exist_ok=True)
    (out / foreign).write_text("mine")
    before = contents(out)
    with pytest.raises(InputError, match="nothing was touched"):
        write(out, text="2", overwrite=True)
    assert contents(out) == before


def test_a_directory_with_our_names_but_not_ours_is_refused(tmp_path: Path) -> None:
    """A folder called usage alone does not make a directory ours."""
    (tmp_path / "usage").mkdir()
    with pytest.raises(InputError, match="did not write"):
        write(tmp_path, text="2", overwrite=True)


def test_a_file_is_refused(tmp_path: Path) -> None:
    """The output must be a directory."""
    (tmp_path / "out").write_text("x")
    with pytest.raises(InputError, match="not a directory"):
        write(tmp_path / "out", text="1")


def test_a_place_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    """Before anything is done, with what to give instead."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=r"file/out cannot be written to: Not a directory"):
        write(tmp_path / "file" / "out", text="1")


def test_a_failure_leaves_the_old_results(tmp_path: Path) -> None:
    """What was not published does not replace anything, and the staging folder goes."""
    write(tmp_path / "out", text="1")
    with pytest.raises(OSError, match="full"), OutputDirectory(tmp_path / "out", overwrite=True) as output:  # noqa: PT012
        (output.staging / "usage").mkdir()
        raise OSError("disk full")
    assert contents(tmp_path / "out").keys() == {MARKER, "usage/a.parquet"}
    assert contents(tmp_path / "out")["usage/a.parquet"] == "1"


def test_a_run_that_was_killed_is_cleaned_up(tmp_path: Path) -> None:
    """The staging folder of a killed run goes with the next one."""
    write(tmp_path / "out", text="1")
    (tmp_path / "out" / ".staging-dead").mkdir()
    (tmp_path / "out" / ".staging-dead" / "x").write_text("x")
    write(tmp_path / "out", text="2", overwrite=True)
    assert contents(tmp_path / "out").keys() == {MARKER, "usage/a.parquet"}


def test_a_first_run_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """A directory that was made for results that never came is taken away."""
    with pytest.raises(RuntimeError), OutputDirectory(tmp_path / "new"):
        raise RuntimeError("no Java")
    assert not (tmp_path / "new").exists()


def test_tables_of_an_earlier_run_do_not_stay_beside_new_ones(tmp_path: Path) -> None:
    """A table that this run did not write is removed: it would speak of other logs."""
    write(tmp_path / "out", text="1")
    with OutputDirectory(tmp_path / "out", overwrite=True) as output:
        (output.staging / "summary.json").write_text("{}")
        output.publish("summary.json")
        output.remove_others(["summary.json"])
    assert contents(tmp_path / "out").keys() == {MARKER, "summary.json"}


@pytest.mark.parametrize("name", sorted(TABLES | OCCASIONAL))
def test_every_table_is_ours(tmp_path: Path, name: str) -> None:
    """Those that not every analysis writes included: they are no foreign content, and go with what they are about."""
    write(tmp_path / "out", text="1")
    with OutputDirectory.existing(tmp_path / "out") as output:
        (output.staging / name).mkdir()
        (output.staging / name / "b.parquet").write_text("1")
        output.publish(name)
    assert f"{name}/b.parquet" in contents(tmp_path / "out")
    write(tmp_path / "out", text="2", overwrite=True)
    assert contents(tmp_path / "out").keys() == {MARKER, "usage/a.parquet"}


def test_only_our_directories_can_be_added_to(tmp_path: Path) -> None:
    """A step that adds tables needs a directory that an earlier step wrote; what is there instead is said."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "begun" / ".staging-dead" / "usage").mkdir(parents=True)
    for name, instead in {
        "absent": "there is no such directory",
        "file": "it is a file",
        "empty": "it is empty",
        "begun": "a run that wrote to it has not come to its end",
        ".": f"it has no {MARKER}",
    }.items():
        with pytest.raises(InputError, match=f"is not a directory that .*: {instead}"):
            OutputDirectory.existing(tmp_path / name)


def test_what_others_put_beside_results_does_not_keep_steps_from_adding(tmp_path: Path) -> None:
    """A plan or a quota file that a user keeps there stays, and is no reason to refuse."""
    out = tmp_path / "out"
    write(out, text="1")
    (out / "recommended.yaml").write_text("mine")
    with OutputDirectory.existing(out) as output:
        (output.staging / "clients").mkdir()
        (output.staging / "clients" / "b.parquet").write_text("1")
        output.publish("clients")
        output.remove_others(["clients"])
    assert contents(out).keys() == {MARKER, "clients/b.parquet", "recommended.yaml"}
