"""Quotas that were not always the same: which of them a log is judged by."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kquota.cli.options.entity_types import kafkas_among, leave_out_added
from kquota.cli.options.targets import Target
from kquota.cli.running import warn
from kquota.files import QuotaHistory, QuotasOverTime, QuotaTimeline

if TYPE_CHECKING:
    from kquota.pipeline.dataset.summary import Summary

__all__ = ["moment", "over_time_lines", "quotas_as_of_option", "read_quota_timeline"]

_SHOWN_CHANGES: Final = 5


quotas_as_of_option = click.option(
    "--quotas-as-of",
    type=click.Choice(["log", "now"]),
    help="Of a store's quotas, judge the log by those in force when it was written, or by those in force now.  "
    "[default: log, but now for a log from before the store's history]",
)
"""What :func:`read_quota_timeline` takes."""


def read_quota_timeline(target: Target, quotas_as_of: str | None) -> QuotasOverTime:
    """The quotas with their past, as far as it is known: of a folder of dated files, or of a store with its history.

    A warning names what files have and Kafka has no quota for.

    :raises KquotaError: they cannot be read.
    """
    if quotas_as_of == "log" and target.store is None:
        raise click.UsageError("--quotas-as-of log goes with --store: only a store knows its history.")
    if target.quotas is not None and Path(target.quotas).is_dir():
        from kquota.stores.folder import read_quota_folder

        dated = read_quota_folder(Path(target.quotas))
        for left_out in dated.left_out:
            warn(left_out)
        return dated
    if target.store is None or quotas_as_of == "now":
        return QuotaTimeline.always(leave_out_added(target.read()))
    return _history(target, strict=quotas_as_of == "log")


def _history(target: Target, *, strict: bool) -> QuotasOverTime:
    from kquota.stores.port import HasHistory

    with target.open() as store:
        if not isinstance(store, HasHistory):
            return QuotaTimeline.always(leave_out_added(target.read()))
        commits = [(commit.at_ms, commit.changes) for commit in store.history()]
    kafkas = kafkas_among(change.entity for _, changes in commits for change in changes)
    return QuotaHistory(
        [(at_ms, tuple(change for change in changes if change.entity in kafkas)) for at_ms, changes in commits],
        strict=strict,
    )


def over_time_lines(summary: Summary) -> list[str]:
    """What is to be said of quotas that were not always the same, or that are not known for all of the log."""
    known = summary.quotas_over_time
    start_ms = summary.start_ms
    if known is None or start_ms is None:
        return []
    lines: list[str] = []
    if changes := known.changes:
        moments = [moment(one.valid_from_ms) for one in known.periods[1:] if one.valid_from_ms is not None]
        shown = ", ".join(moments[:_SHOWN_CHANGES]) + (", ..." if changes > _SHOWN_CHANGES else "")
        lines.append(
            f"the limits changed {changes:,} time{'s' if changes > 1 else ''} ({shown}): each second is judged by what "
            "was in force then; shown is the last limit"
        )
    if known.recorded_from_ms is not None:
        lines.append(
            f"the history of these quotas begins at {moment(known.recorded_from_ms)}, after this log: it is judged "
            "by the quotas as they are now"
        )
    elif not known.periods:
        lines.append("the quotas given come into force after this log: no limits are known for any of it")
    elif (from_ms := known.periods[0].valid_from_ms) is not None and from_ms > start_ms:
        lines.append(
            f"no limits are known from before {moment(from_ms)}: what was used from {moment(start_ms)} until then is "
            "judged by none"
        )
    return lines


def moment(at_ms: int) -> str:
    """A time as it is printed."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
