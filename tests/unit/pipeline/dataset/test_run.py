"""A run is seen when it commits, all of it at once, unless another changed what it has read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest

from kquota.errors import InputError
from kquota.files import QuotaPeriod, QuotaTimeline, read_quota_file
from kquota.pipeline.dataset import runs
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.errors import (
    BusyError,
    ConflictError,
    MissingTableError,
    NotSharedStorageError,
    NotWritableError,
)
from kquota.pipeline.dataset.manifest import DataFile
from kquota.pipeline.dataset.run import Run
from kquota.pipeline.dataset.runs import Writer
from kquota.pipeline.dataset.steps import (
    ANALYZE_STEP,
    INGEST_STEP,
    RESOLVE_STEP,
    SHOWBACK_STEP,
    SWEEP_STEP,
    UTILISATION_STEP,
    WHATIF_STEP,
    Step,
)
from kquota.pipeline.dataset.summary import CurveRun
from kquota.pipeline.dataset.tables import CLIENTS
from kquota.pipeline.storage.local import LocalStorage
from tests.kit.datasets import add_rows, analysed, left_over, quotas_of, rows_of


def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that begin from now on are of another machine."""
    monkeypatch.setattr(runs, "_machine", lambda: "elsewhere")


def begun_elsewhere(dataset: Dataset, step: Step, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of another machine, which has begun."""
    with monkeypatch.context() as patch:
        elsewhere(patch)
        return dataset.run(step).__enter__()


@dataclass(frozen=True, slots=True)
class BusyStorage(LocalStorage):
    """One where something happens just before a commit."""

    event: Callable[[], object]

    def put_new(self, path: str, content: bytes) -> None:
        self.event()
        LocalStorage.put_new(self, path, content)


def sweep(run: Run, candidates: int = 1) -> None:
    add_rows(run, "curve", *({"limit": float(limit)} for limit in range(candidates)))
    run.summary.curve = CurveRun("open", 1, candidates)


def test_nothing_is_seen_before_the_commit(tmp_path: Path) -> None:
    dataset = analysed(tmp_path)
    with dataset.run(SWEEP_STEP) as run:
        sweep(run)
        assert not Dataset.open(tmp_path).has("curve")
        committed = run.commit()
        assert Dataset.open(tmp_path) == committed
    assert committed.has("curve")
    assert committed.summary.curve == CurveRun("open", 1, 1)
    assert committed.version == 2
    assert left_over(committed) == []


@pytest.mark.parametrize("error", [None, ZeroDivisionError, KeyboardInterrupt])
def test_a_run_without_a_commit_leaves_nothing(tmp_path: Path, error: type[BaseException] | None) -> None:
    dataset = analysed(tmp_path)
    expected = nullcontext() if error is None else pytest.raises(error)
    with expected, dataset.run(SWEEP_STEP) as run:
        sweep(run)
        run.temporary("cells").write(rows_of(CLIENTS, {"user": "alice"}))
        if error is not None:
            raise error
    assert Dataset.open(tmp_path) == dataset
    assert left_over(dataset) == []
    assert not (tmp_path / "curve").exists()


def test_temporary_files_go_with_the_run(tmp_path: Path) -> None:
    dataset = analysed(tmp_path)
    with dataset.run(SWEEP_STEP) as run:
        (file,) = run.temporary("cells").write(rows_of(CLIENTS, {"user": "alice"}))
        run.check_shared([file])
        assert (tmp_path / file.path).is_file()
        sweep(run)
        committed = run.commit()
    assert left_over(committed) == []


def test_a_run_reads_what_it_wrote_and_otherwise_the_dataset(tmp_path: Path) -> None:
    dataset = analysed(tmp_path)
    with dataset.run(UTILISATION_STEP) as run:
        assert run.files("utilisation") == dataset.files("utilisation")
        add_rows(run, "utilisation", {"requests": 5})
        assert run.files("utilisation") != dataset.files("utilisation")
        assert run.files("usage") == dataset.files("usage")
        assert run.has("usage")
        assert not run.has("curve")
        assert run.quotas() == quotas_of(1.0)


def test_a_run_that_replaces_all_sees_nothing_of_before(tmp_path: Path) -> None:
    dataset = analysed(tmp_path)
    with dataset.run(INGEST_STEP) as run:
        assert not run.has("clients")
        assert run.quotas() is None
        run.add("usage")
        committed = run.commit()
    assert committed.tables == {"usage"}
    assert committed.quotas() is None
    assert committed.summary.lines == 0
    assert left_over(committed) == []
    assert {path.name for path in tmp_path.iterdir()} == {"_runs", "summary.json"}


def test_a_step_without_its_input_is_refused(tmp_path: Path) -> None:
    with Dataset.create(tmp_path).run(INGEST_STEP) as run:
        run.add("usage")
        dataset = run.commit()
    with pytest.raises(MissingTableError) as caught:
        dataset.run(UTILISATION_STEP)
    assert (caught.value.table, caught.value.written_by) == ("quotas", "resolve")


def test_new_quotas_drop_what_was_judged_by_the_old(tmp_path: Path) -> None:
    dataset = analysed(tmp_path)
    with dataset.run(SWEEP_STEP) as run:
        sweep(run)
        dataset = run.commit()
    with dataset.run(RESOLVE_STEP) as run:
        add_rows(run, "clients", {"user": "bob"})
        run.set_quotas(quotas_of(9.0))
        run.summary.clients = 1
        committed = run.commit()
    assert committed.tables == {"usage", "rejected", "clients", "quotas"}
    assert committed.quotas() == quotas_of(9.0)
    assert (committed.summary.lines, committed.summary.clients) == (1, 1)
    assert (committed.summary.curve, committed.summary.throttled_meters) == (None, None)
    assert left_over(committed) == []
    assert not (tmp_path / "report.html").exists()


def test_people_find_copies_of_what_is_no_table(tmp_path: Path) -> None:
    analysed(tmp_path, 7)
    assert json.loads((tmp_path / "summary.json").read_text())["lines"] == 7
    assert read_quota_file((tmp_path / "quotas.yaml").read_bytes(), name="") == quotas_of(7.0).last
    assert (tmp_path / "report.html").read_text() == "<p>7</p>"


def test_people_find_since_when_quotas_are_known_if_that_is_in_the_recording(tmp_path: Path) -> None:
    """The table `limits` says the same, and `quotas.yaml` alone would hide it."""
    dataset = analysed(tmp_path)
    file = quotas_of(5.0).periods[0].quotas
    for start_ms, names in ((1_767_225_600_000, []), (1_767_225_599_999, ["2026-01-01T000000Z.yaml"])):
        with dataset.run(INGEST_STEP) as run:
            run.add("usage")
            run.summary.start_ms = start_ms
            dataset = run.commit()
        with dataset.run(RESOLVE_STEP) as run:
            run.add("clients")
            run.set_quotas(QuotaTimeline((QuotaPeriod(1_767_225_600_000, file),)))
            dataset = run.commit()
        assert [path.name for path in tmp_path.glob("quotas/*")] == names
        assert (tmp_path / "quotas.yaml").exists()


def test_runs_of_other_tables_go_on_at_the_same_time(tmp_path: Path) -> None:
    dataset = analysed(tmp_path)
    with dataset.run(SWEEP_STEP) as one, dataset.run(WHATIF_STEP) as other:
        sweep(one)
        add_rows(other, "whatif", {"meter": "user=alice"})
        one.commit()
        other.summary.throttled_meters = 99  # no part of the step
        committed = other.commit()
    assert committed.has("curve")
    assert committed.has("whatif")
    assert committed.summary.curve == CurveRun("open", 1, 1)
    assert committed.summary.throttled_meters is None


def test_a_second_run_of_the_same_tables_is_refused_in_this_process(tmp_path: Path) -> None:
    """Both would work, and one of them for nothing. The first goes on, and after it others may begin."""
    dataset, another = analysed(tmp_path / "one"), analysed(tmp_path / "another")
    with dataset.run(SWEEP_STEP) as run:
        with pytest.raises(BusyError) as caught, dataset.run(SWEEP_STEP):
            pass
        assert caught.value.tables == ("curve",)
        assert caught.value.writer.pid == os.getpid()
        assert f"process {os.getpid()}" in str(caught.value)
        with pytest.raises(BusyError), another.run(SWEEP_STEP, into=dataset):
            pass
        sweep(run)
        committed = run.commit()
    with committed.run(SWEEP_STEP):
        pass
    assert Dataset.open(dataset.url) == committed
    assert left_over(committed) == []


def test_of_runs_of_the_same_tables_on_two_machines_the_last_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = analysed(tmp_path)
    with dataset.run(SWEEP_STEP) as one:
        elsewhere(monkeypatch)
        with dataset.run(SWEEP_STEP) as other:
            sweep(one, 1)
            sweep(other, 2)
            one.commit()
            other.commit()
    committed = Dataset.open(tmp_path)
    assert sorted(committed.read("curve")["limit"].to_pylist()) == [0.0, 1.0]
    assert committed.summary.curve == CurveRun("open", 1, 2)
    assert committed.version == 3
    assert left_over(committed) == []


def test_a_commit_takes_the_next_number_where_others_were_faster(tmp_path: Path) -> None:
    dataset = analysed(tmp_path)
    with dataset.run(WHATIF_STEP) as what_if, dataset.run(SHOWBACK_STEP) as showback:
        faster = [what_if, showback]
        for run in faster:
            run.add(run.step.name)

        def commit_another() -> None:
            if faster:
                faster.pop().commit()

        with replace(dataset, storage=BusyStorage(str(tmp_path), commit_another)).run(SWEEP_STEP) as run:
            sweep(run)
            committed = run.commit()
    assert committed.version == 4
    assert committed.tables >= {"whatif", "showback", "curve"}
    assert left_over(committed) == []


def test_a_commit_that_is_too_late_fails(tmp_path: Path) -> None:
    """It was right when the run looked, and is not when it writes its manifest."""
    dataset = analysed(tmp_path)
    late = replace(dataset, storage=BusyStorage(str(tmp_path), lambda: analysed(tmp_path, 2)))
    with late.run(SWEEP_STEP) as run:
        sweep(run)
        with pytest.raises(ConflictError):
            run.commit()
    assert not Dataset.open(tmp_path).has("curve")


def test_a_run_whose_input_was_changed_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = analysed(tmp_path)
    with dataset.run(SWEEP_STEP) as run:
        sweep(run)
        with dataset.run(RESOLVE_STEP) as resolve:
            resolve.add("clients")
            resolve.set_quotas(quotas_of(5.0))
            committed = resolve.commit()
        with pytest.raises(ConflictError) as caught:
            run.commit()
    assert caught.value.tables == ("clients", "quotas")
    assert caught.value.by == ("resolve",)
    assert Dataset.open(tmp_path) == committed
    assert left_over(committed) == []


def test_an_error_of_a_run_whose_input_was_replaced_is_a_conflict(tmp_path: Path) -> None:
    """A job of Spark fails with whatever error where its files are gone."""
    dataset = analysed(tmp_path)
    with pytest.raises(ConflictError) as caught:
        fail_while_it_is_replaced(dataset, ZeroDivisionError())
    assert "usage" in caught.value.tables
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_what_is_wrong_with_the_input_is_said_though_it_was_replaced(tmp_path: Path) -> None:
    dataset = analysed(tmp_path)
    with pytest.raises(InputError, match="no such limit"):
        fail_while_it_is_replaced(dataset, InputError("no such limit"))


def fail_while_it_is_replaced(dataset: Dataset, error: Exception) -> None:
    with dataset.run(SWEEP_STEP):
        analysed(dataset.url, 2)
        raise error


def test_of_two_runs_that_make_a_new_dataset_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = Dataset.create(tmp_path)
    with new.run(INGEST_STEP) as run:
        elsewhere(monkeypatch)
        first = analysed(tmp_path)
        run.add("usage")
        with pytest.raises(ConflictError) as caught:
            run.commit()
    assert caught.value.by == ("analyze",)
    assert Dataset.open(tmp_path) == first


def test_an_error_after_the_commit_leaves_it_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(storage: LocalStorage, path: str, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    dataset = Dataset.create(tmp_path)

    def work() -> None:
        with dataset.run(INGEST_STEP) as run:
            run.add("usage")
            monkeypatch.setattr(LocalStorage, "put", fail)
            run.commit()

    with pytest.raises(OSError, match="No space"):
        work()
    monkeypatch.undo()
    assert Dataset.open(tmp_path).tables == {"usage"}
    assert not (tmp_path / "summary.json").exists()
    Dataset.open(tmp_path).clean()
    assert (tmp_path / "summary.json").exists()


def test_what_was_tried_can_go_to_another_dataset(tmp_path: Path) -> None:
    dataset = analysed(tmp_path / "recorded", 3)
    analysed(tmp_path / "tried", 1)
    into = Dataset.create(tmp_path / "tried", overwrite=True)
    with dataset.run(WHATIF_STEP, into=into) as run:
        assert run.files("usage") == dataset.files("usage")
        add_rows(run, "whatif", {"meter": "user=alice"})
        committed = run.commit()
    assert Dataset.open(tmp_path / "recorded") == dataset
    assert committed.url == str(tmp_path / "tried")
    assert committed.tables == {"whatif"}
    assert (committed.summary.lines, committed.summary.clients) == (3, None)
    assert left_over(committed) == []


@pytest.mark.parametrize("other", ["link", "recorded/../recorded"])
def test_a_dataset_under_another_name_is_itself(tmp_path: Path, other: str) -> None:
    """A step that writes into it adds a table, and replaces nothing else."""
    dataset = analysed(tmp_path / "recorded", 3)
    (tmp_path / "link").symlink_to(tmp_path / "recorded")
    with dataset.run(WHATIF_STEP, into=Dataset.create(tmp_path / other, overwrite=True)) as run:
        add_rows(run, "whatif", {"meter": "user=alice"})
        committed = run.commit()
    assert committed.tables == dataset.tables | {"whatif"}
    assert committed.read("usage") == dataset.read("usage")
    assert (committed.summary.lines, committed.summary.clients) == (dataset.summary.lines, dataset.summary.clients)
    assert left_over(committed) == []


def test_a_run_into_another_dataset_fails_where_what_it_read_was_changed(tmp_path: Path) -> None:
    dataset = analysed(tmp_path / "recorded")
    with dataset.run(WHATIF_STEP, into=Dataset.create(tmp_path / "tried")) as run:
        analysed(tmp_path / "recorded", 2)
        run.add("whatif")
        with pytest.raises(ConflictError):
            run.commit()


def test_a_file_that_a_worker_wrote_elsewhere_is_named(tmp_path: Path) -> None:
    dataset = analysed(tmp_path)
    lost = DataFile("curve/0123456789ab-0123456789ab.parquet", 1, 1)
    with dataset.run(SWEEP_STEP) as run, pytest.raises(NotSharedStorageError) as caught:
        run.add("curve", [lost])
    assert caught.value.path == lost.path


def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    dataset = analysed(tmp_path / "data")
    with (
        pytest.raises(NotWritableError, match="Not a directory"),
        Dataset(LocalStorage(str(tmp_path / "file" / "below"))).run(ANALYZE_STEP),
    ):
        pass
    assert Dataset.open(tmp_path / "data") == dataset


def test_runs_of_other_machines_are_left_alone_until_they_are_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = analysed(tmp_path)
    run = begun_elsewhere(dataset, SWEEP_STEP, monkeypatch)
    sweep(run)
    lost = [file.path for file in run.files("curve")]
    assert dataset.clean() == []
    assert dataset.clean(older_than_s=3600) == []
    assert dataset.clean(older_than_s=0) == lost
    cleaned = dataset.refresh()
    assert left_over(cleaned) == []
    assert (cleaned.tables, cleaned.live, cleaned.summary) == (dataset.tables, dataset.live, dataset.summary)
    assert cleaned.clean(older_than_s=0) == []
    assert cleaned.refresh() is cleaned


def test_a_run_that_was_taken_for_dead_cannot_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if it had looked just before it was."""
    dataset = analysed(tmp_path)
    run = begun_elsewhere(dataset, SWEEP_STEP, monkeypatch)
    sweep(run)
    cleaned: list[str] = []

    def clean_first() -> None:
        if not cleaned:
            cleaned.extend(dataset.clean(older_than_s=0))

    run.target = replace(dataset, storage=BusyStorage(str(tmp_path), clean_first))
    with pytest.raises(ConflictError) as caught:
        run.commit()
    assert cleaned == [file.path for file in run.files("curve")]
    assert (caught.value.tables, caught.value.by) == (("curve",), ("clean",))
    run.__exit__(None, None, None)
    assert Dataset.open(tmp_path).tables == dataset.tables
    assert left_over(dataset.refresh()) == []


def test_a_run_that_commits_just_before_it_is_taken_for_dead_has_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = analysed(tmp_path)
    run = begun_elsewhere(dataset, SWEEP_STEP, monkeypatch)
    sweep(run)
    done: list[Dataset] = []

    def commit_first() -> None:
        if not done:
            done.append(run.commit())

    assert replace(dataset, storage=BusyStorage(str(tmp_path), commit_first)).clean(older_than_s=0) == []
    assert Dataset.open(tmp_path).read("curve") == done[0].read("curve")
    assert left_over(dataset.refresh()) == []


def test_a_first_run_of_another_machine_is_never_taken_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no commit that could say so."""
    new = Dataset.create(tmp_path)
    run = begun_elsewhere(new, INGEST_STEP, monkeypatch)
    add_rows(run, "requests", {"broker_id": 1})
    run.add("usage")
    assert new.clean(older_than_s=0) == []
    assert run.commit().read("requests").num_rows == 1
    run.__exit__(None, None, None)


def test_a_process_that_ended_and_one_that_began_later_under_its_id() -> None:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    here = Writer.of_this_process(["curve"])
    assert here.is_running()
    assert not msgspec.structs.replace(here, pid=int(ended.stdout)).is_running()
    assert not msgspec.structs.replace(here, pid_started="1").is_running()


def test_machines_of_one_name_are_not_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers are often called alike; nor is a machine the same after it was started again."""
    here = Writer.of_this_process(["curve"])
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("c0ffee\n")
    monkeypatch.setattr(runs, "_BOOT_ID", boot_id)
    there = Writer.of_this_process(["curve"])
    assert here.host == there.host
    assert there.is_running()
    assert here.is_running() is None


@pytest.mark.parametrize("name", ["tried", "whatif"])
def test_a_dataset_in_a_folder_of_another_is_left_alone(tmp_path: Path, name: str) -> None:
    outer = analysed(tmp_path)
    inner = analysed(tmp_path / name)
    assert outer.clean(older_than_s=0) == []
    with outer.run(SWEEP_STEP) as run:
        sweep(run)
        run.commit()
    assert left_over(inner) == []
    assert inner.read("usage").num_rows == 2


@pytest.mark.parametrize("missing", ["_BOOT_ID", "_PID_NAMESPACE"])
def test_on_a_system_without_proc_the_name_is_the_machine(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setattr(runs, missing, Path("/no/such"))
    here = Writer.of_this_process(["curve"])
    assert here.is_running()
    monkeypatch.setattr(runs, "gethostname", lambda: "elsewhere")
    assert (here.is_running() is None) == (missing == "_BOOT_ID")
