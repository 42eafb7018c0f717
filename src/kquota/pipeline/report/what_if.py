"""Table `whatif` as the page shows it: the meters that other limits touch, those that fare worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kquota.pipeline.advice.what_if import UNKNOWNS, is_changed, to_totals, worst_first
from kquota.pipeline.report import model

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

__all__ = ["what_if_of"]


def what_if_of(table: DataFrame, bounds: model.Bounds) -> model.WhatIf:
    """The counts of the table, and the worst of its rows that are changed: throttled anew, then muted longest."""
    counts = to_totals(table).first()
    assert counts is not None  # an aggregate without groups always has its row
    rows = worst_first(table.where(is_changed())).limit(bounds.what_if).collect()
    used = {name for row in rows for name in row.unknowns or ()}
    known = [name for name in UNKNOWNS if name in used]
    return model.WhatIf(
        **counts.asDict(),
        rows=tuple(_meter(row) for row in rows),
        unknowns=tuple((name, UNKNOWNS.get(name, "")) for name in (*known, *sorted(used - set(known)))),
    )


def _meter(row: Row) -> model.WhatIfMeter:
    return model.WhatIfMeter(
        broker_id=row.broker_id,
        name=model.MeterName(row.cluster or "", row.meter, row.key),
        limit_old=row.limit_old,
        limit_new=row.limit_new,
        amount_old=row.amount_old,
        amount_new=row.amount_new,
        throttled_requests=row.throttled_requests or 0,
        share=row.throttled_share,
        max_delay_ms=row.max_delay_ms,
        total_delay_ms=row.total_delay_ms,
        previous_meters=row.previous_meters,
        newly_throttled=bool(row.newly_throttled),
        no_longer_throttled=bool(row.no_longer_throttled),
        unknowns=tuple(row.unknowns or ()),
    )
