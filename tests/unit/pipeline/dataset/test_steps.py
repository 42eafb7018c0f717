"""What follows from what steps read and write."""

from __future__ import annotations

import pytest

from kquota.pipeline.dataset.steps import (
    ANALYZE_STEP,
    DOCUMENTS,
    INGEST_STEP,
    REPORT_STEP,
    RESOLVE_STEP,
    STEPS,
    UTILISATION_STEP,
    Step,
    changed_by,
    reset_parts,
    written_by,
)
from kquota.pipeline.dataset.summary import Summary
from kquota.pipeline.dataset.tables import ALL_TABLES

EVERYTHING = {*ALL_TABLES, *DOCUMENTS}
OF_INGEST = {"usage", "requests", "rejected"}


def test_each_table_is_written_by_one_step() -> None:
    written = [name for step in STEPS for name in step.writes]
    assert sorted(written) == sorted(EVERYTHING)


def test_each_field_of_the_summary_is_set_by_one_step() -> None:
    parts = [part for step in STEPS for part in step.parts]
    assert sorted([*parts, "seconds"]) == sorted(Summary.__struct_fields__)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_no_step_reads_what_it_writes(step: Step) -> None:
    assert not step.used.intersection(step.writes)
    assert step.used <= EVERYTHING


@pytest.mark.parametrize("table, step", [("usage", "ingest"), ("curve", "sweep"), ("quotas", "resolve")])
def test_who_writes_a_table(table: str, step: str) -> None:
    assert written_by(table).name == step


def test_other_quotas_leave_what_the_logs_say_alone() -> None:
    changed = changed_by(RESOLVE_STEP, EVERYTHING)
    assert changed == EVERYTHING - OF_INGEST
    assert reset_parts(RESOLVE_STEP) == {part for step in STEPS[1:] for part in step.parts}


def test_what_is_not_there_is_not_dropped() -> None:
    assert changed_by(RESOLVE_STEP, OF_INGEST | {"curve"}) == {*RESOLVE_STEP.writes, "curve"}


def test_a_step_changes_its_own_tables_alone() -> None:
    assert changed_by(UTILISATION_STEP, EVERYTHING) == {"utilisation", "throttled", "calibration"}
    assert reset_parts(UTILISATION_STEP) == {"throttled_meters", "calibration"}
    assert changed_by(REPORT_STEP, EVERYTHING) == {"report"}
    assert reset_parts(REPORT_STEP) == frozenset()


@pytest.mark.parametrize("step", [INGEST_STEP, ANALYZE_STEP], ids=lambda step: step.name)
def test_other_logs_replace_all(step: Step) -> None:
    assert step.begins_anew
    assert changed_by(step, EVERYTHING) == EVERYTHING
    assert reset_parts(step) == set(Summary.__struct_fields__)


def test_only_the_ingest_is_not_judged_by_quotas() -> None:
    assert [step.name for step in STEPS if not step.is_judged] == ["ingest"]
