"""Plans carried out on a store from Python, without the command line."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from subprocess import run

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.errors import ApiError, InputError, KafkaErrorCode
from kquota.policy import Drift, Plan, PlanTarget, read_plan, write_plan
from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity, QuotaSnapshot
from kquota.stores import open_store
from kquota.stores.local import LocalStore
from kquota.stores.memory import MemoryKeeper
from kquota.stores.plans import (
    PlanDriftError,
    PlanTargetError,
    all_quotas,
    prepare_plan,
    prepare_quotas,
    prepare_rollback,
)
from kquota.stores.rollback_file import RollbackFileError, write_rollback_file
from tests.kit.strategies import crowded_entities, snapshots

PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"
ALICE, BOB, CAROL = (ClientQuotaEntity({"user": name}) for name in ("alice", "bob", "carol"))
BEFORE: QuotaSnapshot = {ALICE: {PRODUCE: 5.0, CONSUME: 9.0}, BOB: {PRODUCE: 7.0}}
AFTER: QuotaSnapshot = {ALICE: {PRODUCE: 6.0, CONSUME: 9.0}, CAROL: {PRODUCE: 1.0}}

quotas = snapshots(crowded_entities, max_size=8)


def store_of(snapshot: QuotaSnapshot) -> LocalStore:
    return LocalStore(MemoryKeeper(snapshot), max_changes=None)


def plan_of(store: LocalStore, wanted: QuotaSnapshot) -> Plan:
    return Plan.between(PlanTarget(store.identity, "here"), all_quotas(store), wanted, prune=True)


def set_value(store: LocalStore, entity: ClientQuotaEntity, key: str, value: float | None) -> None:
    assert store.alter([ClientQuotaAlteration(entity, [ClientQuotaAlteration.Op(key, value)])]) == {entity: None}


@given(quotas, quotas, st.data())
def test_a_plan_is_carried_out_resumed_and_undone(
    before: QuotaSnapshot, after: QuotaSnapshot, data: st.DataObject
) -> None:
    """From wherever it ended; what was done is not done again, and undoing it leads back to the very same quotas."""
    with store_of(before) as store:
        plan = plan_of(store, after)
        done = data.draw(st.sets(st.sampled_from(plan.entities))) if plan.entities else set()
        first = Plan.of(plan.target, before, [one for one in plan.changes if one.entity in done])
        assert {one.status for one in prepare_plan(store, first).carry_out()} <= {"done"}
        resumed = prepare_plan(store, plan).carry_out()
        assert {one.entity: one.status for one in resumed} == {
            entity: "unchanged" if entity in done else "done" for entity in plan.entities
        }
        assert all_quotas(store) == after
        again = prepare_plan(store, plan)
        assert (again.changes, {one.status for one in again.carry_out()} <= {"unchanged"}) == ((), True)
        assert {one.status for one in prepare_rollback(store, plan).carry_out()} <= {"done"}
        assert all_quotas(store) == before


def test_a_dry_run_changes_nothing_and_is_no_entry_of_the_history() -> None:
    with store_of(BEFORE) as store:
        outcomes = prepare_plan(store, plan_of(store, AFTER)).carry_out(dry_run=True)
        assert [(one.entity, one.status, one.error) for one in outcomes] == [
            (ALICE, "unchanged", None), (BOB, "unchanged", None), (CAROL, "unchanged", None)
        ]  # fmt: skip
        assert (all_quotas(store), list(store.history())) == (BEFORE, [])


def test_nothing_is_changed_before_it_is_carried_out() -> None:
    with store_of(BEFORE) as store:
        plan = plan_of(store, AFTER)
        for prepared in (prepare_plan(store, plan), prepare_quotas(store, AFTER, prune=True)):
            assert prepared.plan.includes(plan.changes)
            assert [one.entity for one in prepared.changes] == [ALICE, BOB, CAROL]
        assert prepare_rollback(store, plan).changes == ()
        assert (all_quotas(store), list(store.history())) == (BEFORE, [])


def test_who_carried_it_out_is_in_the_history() -> None:
    with store_of(BEFORE) as store:
        plan = plan_of(store, AFTER)
        prepare_plan(store, plan).carry_out(principal="User:reviewer")
        prepare_rollback(store, plan).carry_out()
        one, other = store.history()
        assert one.principal == "User:reviewer"
        assert other.principal.startswith("local:")


def test_quotas_without_a_plan_leave_alone_what_is_not_named() -> None:
    """Unless they are pruned; each entity that is named is reported."""
    with store_of(BEFORE) as store:
        found = prepare_quotas(store, {**AFTER, BOB: {}}).carry_out()
        assert [(one.entity, one.status) for one in found] == [(ALICE, "done"), (CAROL, "done"), (BOB, "unchanged")]
        assert all_quotas(store) == {**BEFORE, **AFTER}
        assert [one.entity for one in prepare_quotas(store, AFTER, prune=True).carry_out() if one.changes] == [BOB]
        assert all_quotas(store) == AFTER


def test_a_plan_for_other_quotas_is_refused() -> None:
    """Whatever they are called; the error has both."""
    with store_of(BEFORE) as store, store_of(BEFORE) as other:
        plan = plan_of(other, AFTER)
        for prepare in (prepare_plan, prepare_rollback):
            with pytest.raises(PlanTargetError, match=r"^the plan was made for here \(id .*\), and this is") as caught:
                prepare(store, plan)
            assert isinstance(caught.value, InputError)
            assert (caught.value.planned.id, caught.value.found.id) == (other.identity, store.identity)
        here = PlanTarget(None, "nowhere")
        with pytest.raises(PlanTargetError, match=r"^plan\.json was made for .* and this is nowhere: make a plan"):
            prepare_plan(store, plan, target=here, name="plan.json")


def test_what_drifted_is_in_the_error() -> None:
    with store_of(BEFORE) as store:
        plan = plan_of(store, AFTER)
        set_value(store, ALICE, CONSUME, 8.0)
        set_value(store, CAROL, PRODUCE, 3.0)
        with pytest.raises(PlanDriftError) as caught:
            prepare_plan(store, plan)
        assert caught.value.drifted == (Drift(ALICE, CONSUME, 9.0, 8.0), Drift(CAROL, PRODUCE, None, 3.0))
        assert "user=carol: producer_byte_rate was not set and is 3 now\nMake a new plan" in str(caught.value)
        assert caught.value.exit_code == 1


def test_many_that_drifted_are_counted() -> None:
    many: QuotaSnapshot = {ClientQuotaEntity({"user": f"u{n:02}"}): {PRODUCE: 1.0} for n in range(22)}
    with store_of(many) as store:
        plan = plan_of(store, {entity: {PRODUCE: 2.0} for entity in many})
        for entity in many:
            set_value(store, entity, PRODUCE, 3.0)
        with pytest.raises(PlanDriftError, match=r"user=u19: .*\n  \.\.\. and 2 more\nMake") as caught:
            prepare_plan(store, plan)
        assert "u20" not in str(caught.value)


def test_a_rollback_leaves_alone_what_drifted() -> None:
    """An entity as a whole, and it says which value; unless it is forced."""
    with store_of(BEFORE) as store:
        plan = plan_of(store, AFTER)
        prepare_plan(store, plan).carry_out()
        set_value(store, ALICE, PRODUCE, 60.0)
        prepared = prepare_rollback(store, plan)
        assert prepared.drifted == (Drift(ALICE, PRODUCE, 6.0, 60.0),)
        alice, bob, carol = prepared.carry_out()
        assert (alice.status, bob.status, carol.status) == ("failed", "done", "done")
        assert alice.error == ApiError(
            KafkaErrorCode.INVALID_UPDATE_VERSION, "producer_byte_rate was left at 6 and is 60 now"
        )
        assert all_quotas(store) == {**BEFORE, ALICE: {PRODUCE: 60.0, CONSUME: 9.0}}
        assert prepare_rollback(store, plan, force=True).drifted == ()
        prepare_rollback(store, plan, force=True).carry_out()
        assert all_quotas(store) == BEFORE


class TestRollbackFile:
    def test_it_is_the_plan_of_what_is_about_to_be_done(self, tmp_path: Path) -> None:
        with store_of(BEFORE) as store:
            plan = plan_of(store, AFTER)
            path = write_rollback_file(prepare_plan(store, plan).plan, source=tmp_path / "plan.json", reviewed=plan)
            prepare_plan(store, plan).carry_out()
            assert path == tmp_path / "plan.rollback.json"
            prepare_rollback(store, read_plan(path.read_bytes(), name="undo")).carry_out()
            assert all_quotas(store) == BEFORE

    def test_a_resumed_plan_takes_the_file_of_its_first_start(self, tmp_path: Path) -> None:
        with store_of(BEFORE) as store:
            plan = plan_of(store, AFTER)
            beside = tmp_path / "plan.json"
            first = write_rollback_file(plan, source=beside, reviewed=plan)
            content = first.read_bytes()
            left = Plan.of(plan.target, BEFORE, plan.changes[1:])
            assert write_rollback_file(left, source=beside, reviewed=plan) == first
            assert first.read_bytes() == content
            # Of quotas without a plan it cannot be known.
            assert write_rollback_file(left, source=beside) == tmp_path / "plan.rollback-2.json"
            assert write_rollback_file(left, source=beside, path=first) == first

    def test_a_file_that_does_not_undo_this_is_not_replaced(self, tmp_path: Path) -> None:
        with store_of(BEFORE) as store:
            plan = plan_of(store, AFTER)
        path = tmp_path / "undo.json"
        for content in ("{", write_plan(Plan.of(plan.target, BEFORE, plan.changes[:1]))):
            path.write_text(content)
            with pytest.raises(RollbackFileError, match=r"it does not undo this; nothing was changed$") as caught:
                write_rollback_file(plan, source=tmp_path / "plan.json", path=path, reviewed=plan)
            assert (caught.value.path, path.read_text()) == (path, content)

    def test_where_it_cannot_be_written_is_said(self, tmp_path: Path) -> None:
        with store_of(BEFORE) as store:
            plan = plan_of(store, AFTER)
        with pytest.raises(RollbackFileError, match=r"No such file or directory; nothing was changed$"):
            write_rollback_file(plan, source=tmp_path / "missing" / "plan.json")


def test_carrying_out_a_plan_loads_no_command_line() -> None:
    program = "import sys, kquota.stores.plans, kquota.stores.rollback_file; print(*sys.modules)"
    loaded = run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "kquota.policy.plan" in loaded
    assert not [name for name in loaded if name == "click" or name.startswith("kquota.cli")]


def test_a_plan_is_for_the_store_whichever_way_it_is_opened(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'quotas.db'}"
    with open_store(url) as store:
        prepare_quotas(store, BEFORE).carry_out()
        plan = plan_of(store, AFTER)
    with open_store(url) as store:
        prepare_plan(store, read_plan(write_plan(plan), name="plan.json")).carry_out()
        assert all_quotas(store) == AFTER


def test_the_example_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "plans.md").read_text(encoding="utf-8")
    [program] = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("quotas.yaml").write_text("- {entity: {user: alice}, values: {producer_byte_rate: 1000}}\n")
    exec(compile(program, "docs/plans.md", "exec"), {})
    assert capsys.readouterr().out == "['done']\n['done']\n"
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["plan.json", "plan.rollback.json"]
    with open_store("sqlite:///kquota.db") as store:
        assert all_quotas(store) == {}
