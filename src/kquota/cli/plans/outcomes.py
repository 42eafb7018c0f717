"""What came of changes, in words and records for each entity, and the exit code that follows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import click

from kquota.cli.options.entity_types import current_model
from kquota.cli.output import Layout, align, write_records
from kquota.errors import ApiError, KquotaError
from kquota.quotas import format_number
from kquota.stores.changes import Outcome

__all__ = ["count_entities", "print_progress", "print_summary", "write_outcomes"]


def write_outcomes(found: Sequence[Outcome], format: str) -> int:
    """Print them, and what failed to standard error too; the exit code. Text leaves out what had no change."""
    write_records(found, format, _LAYOUT)
    errors = [(one, one.error) for one in found if one.error is not None]
    for one, error in errors:
        click.echo(f"kquota: error: {one.entity.to_text()}: {error}{_hint(one, error)}", err=True)
    codes = {error.to_exception().exit_code for _, error in errors}
    if not codes:
        return 0
    # Some done, or for several reasons: the work failed. All for one reason: that is what the caller can act on.
    is_all = len(errors) == sum(bool(one.changes or one.error) for one in found)
    return codes.pop() if is_all and len(codes) == 1 else KquotaError.exit_code


def print_summary(
    found: Sequence[Outcome], *, done: str, dry_run: bool, drifted: int = 0, more_unchanged: int = 0
) -> None:
    """How many entities were `done` and how many were not, on standard error.

    :param drifted: how many of the failures are because somebody else has changed the entity.
    :param more_unchanged: how many entities had no change to make and are not in `found`.
    """
    unknown = sum(one.status == "unknown" for one in found)
    failures = sum(one.status == "failed" for one in found) - drifted
    successes = sum(bool(one.changes) and one.error is None for one in found)
    unchanged = len(found) - unknown - failures - drifted - successes + more_unchanged
    click.echo(
        f"{count_entities(successes)} {'would be ' if dry_run else ''}{done}, {unchanged} unchanged"
        + (f", {drifted} changed by somebody else since (--force restores them too)" if drifted else "")
        + (f", {failures} failed" if failures else "")
        + (f", {unknown} unknown" if unknown else ""),
        err=True,
    )
    if (failures or unknown) and not dry_run:
        click.echo("fix the cause and run it again: it resumes", err=True)


def print_progress(done: int, of: int) -> None:
    """How many entities are done, on standard error."""
    click.echo(f"{done} of {count_entities(of)}", err=True)


def count_entities(number: int) -> str:
    """``1 entity``, ``2 entities``."""
    return f"{number} {'entity' if number == 1 else 'entities'}"


def _hint(one: Outcome, error: ApiError) -> str:
    if error.is_unknown or not (error.message or "").startswith("Invalid configuration key"):
        return ""
    known = current_model().keys_for(one.entity.entries) or {}
    wrong = [change.key for change in one.changes if change.after is not None and change.key not in known]
    close = get_close_matches(wrong[0], known, 1) if wrong else []
    if close:
        return f"; did you mean {close[0]}?"
    return f"; on {one.entity.to_text()} may be set: {', '.join(sorted(known))}" if known else ""


def _value(value: float | None) -> str:
    return "" if value is None else format_number(value)


def _text_lines(outcomes: Iterable[Outcome]) -> list[str]:
    found = list(outcomes)
    return align([row for one in found if one.changes or one.error or len(found) == 1 for row in _text_rows(one)])


def _text_rows(one: Outcome) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    entity = one.entity.to_text()
    for change in one.changes:
        status = "valid" if one.dry_run and one.error is None else one.status
        rows.append((entity, change.key, f"{_value(change.before) or '-'} -> {_value(change.after) or '-'}", status))
        entity = ""
    return rows or [(entity, "", "", one.status)]


_LAYOUT: Layout[Outcome] = Layout(
    fields=lambda one: {
        "entity": dict(one.entity.entries),
        "status": one.status,
        "error": None
        if one.error is None
        else {"code": one.error.code, "name": one.error.name, "message": one.error.message},
        "changes": {change.key: {"before": change.before, "after": change.after} for change in one.changes},
    },
    header=("entity", "key", "before", "after", "status", "error"),
    rows=lambda one: [
        (one.entity.to_text(), *change, one.status, "" if one.error is None else str(one.error))
        for change in [(c.key, _value(c.before), _value(c.after)) for c in one.changes] or [("", "", "")]
    ],
    text=_text_lines,
)
