"""What came of changes, told for each entity, and the exit code that follows."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

import click

from kquota.cli.options.entity_types import current_model
from kquota.cli.output import Layout, align, write_records
from kquota.errors import ApiError, KquotaError, failed
from kquota.quotas import ClientQuotaEntity, QuotaChange, format_number

__all__ = ["Outcome", "outcomes", "write_outcomes"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One entity: what was to change, and what came of it."""

    entity: ClientQuotaEntity
    changes: tuple[QuotaChange, ...]
    error: ApiError | None
    dry_run: bool

    @property
    def status(self) -> str:
        """One word: done, unchanged (there was nothing to do, or it is a dry run), failed or unknown."""
        if self.error is None:
            return "unchanged" if self.dry_run or not self.changes else "done"
        return "unknown" if self.error.is_unknown else "failed"


def outcomes(
    entities: Iterable[ClientQuotaEntity],
    changes: Iterable[QuotaChange],
    results: Mapping[ClientQuotaEntity, ApiError | None],
    *,
    dry_run: bool,
) -> list[Outcome]:
    """What became of `entities`, in their order, and of others that were changed.

    :param results: by entity that was sent; the others were right already.
    """
    by_entity: dict[ClientQuotaEntity, list[QuotaChange]] = {entity: [] for entity in (*entities, *results)}
    for change in changes:
        by_entity[change.entity].append(change)
    return [Outcome(entity, tuple(own), results.get(entity), dry_run) for entity, own in by_entity.items()]


def write_outcomes(found: list[Outcome], format: str) -> int:
    """Print them, and what failed to standard error too; the exit code. Text leaves out what was right already."""
    if format == "text":
        rows = [row for one in found if one.changes or one.error or len(found) == 1 for row in _text_rows(one)]
        sys.stdout.write("".join([line + "\n" for line in align(rows)]))
    else:
        write_records(found, format, _LAYOUT)
    errors = [(one, one.error) for one in found if one.error is not None]
    for one, error in errors:
        click.echo(f"kquota: error: {one.entity.to_text()}: {error}{_hint(one, error)}", err=True)
    codes = {failed(error).exit_code for _, error in errors}
    if not codes:
        return 0
    # Some done, or for several reasons: the work failed. All for one reason: that is what the caller can act on.
    is_all = len(errors) == sum(bool(one.changes or one.error) for one in found)
    return codes.pop() if is_all and len(codes) == 1 else KquotaError.exit_code


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
    return "-" if value is None else format_number(value)


def _text_rows(one: Outcome) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    entity = one.entity.to_text()
    for change in one.changes:
        status = "valid" if one.dry_run and one.error is None else one.status
        rows.append((entity, change.key, f"{_value(change.before)} -> {_value(change.after)}", status))
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
    rows=lambda one: (
        [
            (
                one.entity.to_text(),
                change.key,
                "" if change.before is None else format_number(change.before),
                "" if change.after is None else format_number(change.after),
                one.status,
                "" if one.error is None else str(one.error),
            )
            for change in one.changes
        ]
        or [(one.entity.to_text(), "", "", "", one.status, "" if one.error is None else str(one.error))]
    ),
    text=lambda one: one.entity.to_text(),
)
