"""What other limits would have done to recorded traffic: table `whatif`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from kquota.pipeline.dataset.summary import GrainDifference
from kquota.pipeline.dataset.tables import WHATIF
from kquota.pipeline.limits.clients import KAFKA_METER, with_limits_by_quota_set
from kquota.pipeline.limits.identities import IDENTITY, METER, identities
from kquota.pipeline.simulation.arrivals import ArrivalModel
from kquota.pipeline.simulation.candidate_limits import QuotaColumns
from kquota.quotas import CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, QuotaSnapshot

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "NEW",
    "OLD",
    "UNKNOWNS",
    "changed",
    "grain_difference",
    "is_changed",
    "to_bindings",
    "to_totals",
    "to_what_if",
    "with_old_limits",
    "worst_first",
    "worst_rows",
]

UNKNOWNS: Final[Mapping[str, str]] = {
    "shared-meter": "how the meter splits between its clients",
    "suppressed-demand": "what clients would use under a higher limit: they were throttled in the recording",
    "shaped-arrivals": "when requests would come: in the recording the old limit throttled them",
    "request-time": "anything exact: the log has only a part of the time that is counted",
    "large-requests": "throttle times and throughput to some per cent: a request is larger than a second of the limit",
    "borderline": "whether it is throttled at all: it comes within 5 % of the limit",
    "fetch-waits": "how long fetches wait: seconds of usage do not show it",
    "amounts": "what some requests used, which is in no figure: all of them are too small",
    "coarse-cells": "what happens within a cell of usage, which is longer than a second",
}
"""What a row of `whatif` may not know, by its name in the column `unknowns`."""

_NEAR: Final = 0.95


def to_bindings(
    clients: DataFrame, old: QuotaSnapshot, new: QuotaSnapshot, *, static_defaults: Mapping[str, float]
) -> DataFrame:
    """The limit of each client under the old and the new quotas: one row per client and key with a limit under either.

    Columns: cluster, user, client_id, ip, key; limit_old, source_old, meter_old; limit, limit_source, meter. A limit is
    null for none, and its source ''; its meter is the one that Kafka keeps without a limit, or else the one under the
    other quotas.

    :param clients: the `clients` table, or any with the first five columns, a row for each client and key.
    """
    both = with_limits_by_quota_set(identities(clients), {"_old": old, "_new": new}, static_defaults=static_defaults)
    return both.where(F.col("meter_old").isNotNull() | F.col("meter_new").isNotNull()).select(
        *IDENTITY,
        "limit_old",
        F.coalesce("limit_source_old", F.lit("")).alias("source_old"),
        F.coalesce("meter_old", f"{KAFKA_METER}_old", "meter_new").alias("meter_old"),
        F.col("limit_new").alias("limit"),
        F.coalesce("limit_source_new", F.lit("")).alias("limit_source"),
        F.coalesce("meter_new", f"{KAFKA_METER}_new", "meter_old").alias("meter"),
    )


def changed(bindings: DataFrame) -> DataFrame:
    """Those of the meters, old and new, that a change touches: another limit, or another meter, for any client."""
    is_changed = ~F.col("limit").eqNullSafe(F.col("limit_old")) | (F.col("meter") != F.col("meter_old"))
    touched = bindings.where(is_changed)
    old = touched.select("cluster", "key", F.col("meter_old").alias("touched"))
    new = touched.select("cluster", "key", F.col("meter").alias("touched"))
    meters = old.union(new).distinct()
    on_new = [bindings[name] == meters[name] for name in ("cluster", "key")] + [bindings["meter"] == meters["touched"]]
    return bindings.join(meters, on_new, "left_semi")


OLD: Final = QuotaColumns("meter_old", "limit_old")
NEW: Final = QuotaColumns()
"""Of bindings."""


def with_old_limits(bindings: DataFrame) -> DataFrame:
    """Clients with their old meters and limits: cluster, user, client_id, ip, key, meter, limit."""
    return bindings.select(*IDENTITY, F.col("meter_old").alias("meter"), F.col("limit_old").alias("limit"))


def to_what_if(
    bindings: DataFrame, candidate: DataFrame, current: DataFrame, *, model: ArrivalModel, grain: str, is_recorded: bool
) -> DataFrame:
    """The `whatif` table: one row per broker, meter and key.

    :param bindings: as :func:`to_bindings` gives them.
    :param candidate: columns of :data:`~kquota.pipeline.simulation.recording.SIMULATED`, under the new limits.
    :param current: the same under the old ones.
    :param is_recorded: whether the old limits were in force during the recording, so that throttling in it counts.
    """
    was_throttled = F.col("throttled_requests") > 0
    if is_recorded:
        was_throttled |= F.col("throttled_requests_logged") > 0
    old = current.select(
        "cluster",
        "key",
        "broker_id",
        F.col("meter").alias("meter_old"),
        was_throttled.alias("was_throttled"),
    )
    is_moved = F.col("meter_old") != F.col("meter")
    new_of_old = bindings.select("cluster", "key", "meter", "meter_old").distinct()
    throttled_before = (
        new_of_old.join(old, ["cluster", "key", "meter_old"])
        .groupBy(*METER, "broker_id")
        .agg(F.bool_or("was_throttled").alias("was_throttled"))
    )
    meters = bindings.groupBy(*METER).agg(
        F.count(F.lit(1)).alias("clients"),
        # What it had itself, otherwise the least of those that its clients come from.
        F.coalesce(F.min(F.when(~is_moved, F.col("limit_old"))), F.min("limit_old")).alias("limit_old"),
        F.array_join(F.sort_array(F.collect_set(F.when(is_moved, F.col("meter_old")))), "; ").alias("previous_meters"),
    )
    limit_new = F.when(F.col("limit") < float("inf"), F.col("limit"))
    is_throttled = F.col("throttled_requests") > 0
    was = F.coalesce("was_throttled", F.lit(False))
    # Where nothing changes, the simulation may miss what the broker did, and that is no effect of the change.
    is_changed = ~F.col("limit_old").eqNullSafe(limit_new) | (F.col("previous_meters") != "")
    table = (
        candidate.join(F.broadcast(meters), [*METER])
        .join(throttled_before, [*METER, "broker_id"], "left")
        .select(
            "cluster",
            "broker_id",
            "meter",
            "key",
            "limit_old",
            limit_new.alias("limit_new"),
            F.lit(model.value).alias("model"),
            F.lit(grain).alias("grain"),
            F.col("recorded").alias("amount_old"),
            F.col("amount").alias("amount_new"),
            "throttled_requests",
            "throttled_ms",
            (F.col("muted_ms") / F.col("recorded_ms")).alias("throttled_share"),
            "max_delay_ms",
            "total_delay_ms",
            "backlog_max",
            F.when(F.col("previous_meters") != "", F.col("previous_meters")).alias("previous_meters"),
            (is_throttled & ~was).alias("newly_throttled"),
            (was & ~is_throttled & is_changed).alias("no_longer_throttled"),
            _unknowns(grain, was_shaped=(F.col("throttled_requests_logged") > 0)).alias("unknowns"),
        )
    )
    return WHATIF.conform(table)


def is_changed() -> Column:
    """Whether the new limits touch a row of `whatif`: its limit is another one, or it has clients of other meters."""
    return ~F.col("limit_old").eqNullSafe(F.col("limit_new")) | F.col("previous_meters").isNotNull()


def to_totals(what_if: DataFrame) -> DataFrame:
    """One row of counts of meters: meters, throttled, newly_throttled, no_longer_throttled, taken_over, changed.

    :param what_if: rows of the `whatif` table.
    """
    return what_if.agg(
        F.count(F.lit(1)).alias("meters"),
        F.count_if(F.col("throttled_requests") > 0).alias("throttled"),
        F.count_if("newly_throttled").alias("newly_throttled"),
        F.count_if("no_longer_throttled").alias("no_longer_throttled"),
        F.count_if(F.col("previous_meters").isNotNull()).alias("taken_over"),
        F.count_if(is_changed()).alias("changed"),
    )


def worst_first(what_if: DataFrame) -> DataFrame:
    """Rows of the `whatif` table in the order to read them: newly throttled, muted longest, no longer throttled."""
    return what_if.orderBy(
        F.desc("newly_throttled"),
        F.desc("throttled_share"),
        F.desc("total_delay_ms"),
        F.desc("no_longer_throttled"),
        *("cluster", "meter", "key", "broker_id"),
    )


def worst_rows(what_if: DataFrame, count: int) -> DataFrame:
    """The `count` worst rows of `whatif` that are throttled, were, or have clients of other meters.

    Rows that the change does not touch are left out, unless there are no others.
    """
    is_news = (F.col("throttled_requests") > 0) | F.col("no_longer_throttled") | F.col("previous_meters").isNotNull()
    touched = what_if.where(is_changed())
    return worst_first((what_if if touched.isEmpty() else touched).where(is_news)).limit(count)


def grain_difference(by_requests: DataFrame, by_cells: DataFrame) -> GrainDifference:
    """How far cells and requests are apart on the meters that either throttles: throughput, and share of time."""
    place = ("cluster", "broker_id", "meter", "key")
    cells = by_cells.select(
        *place,
        F.col("amount").alias("cell_amount"),
        F.col("muted_ms").alias("cell_muted_ms"),
        F.col("throttled_requests").alias("cell_throttled"),
    )
    both = by_requests.join(cells, list(place)).where((F.col("throttled_requests") > 0) | (F.col("cell_throttled") > 0))
    amount = F.abs(F.col("cell_amount") - F.col("amount")) / F.greatest("amount", F.lit(1.0))
    share = F.abs(F.col("cell_muted_ms") - F.col("muted_ms")) / F.col("recorded_ms")
    found = both.agg(
        F.count(F.lit(1)).alias("meters"),
        F.avg(amount).alias("amount_mean"),
        F.max(amount).alias("amount_worst"),
        F.max_by(F.concat_ws(" ", "meter", "key"), amount).alias("amount_worst_meter"),
        F.avg(share).alias("share_mean"),
        F.max(share).alias("share_worst"),
    ).first()
    assert found is not None
    return GrainDifference(**found.asDict())


def _unknowns(grain: str, *, was_shaped: Column) -> Column:
    """The names of what this row cannot know."""
    is_throttled = F.col("throttled_requests") > 0
    rises = F.coalesce(F.col("limit") > F.col("limit_old"), F.lit(False))
    is_fetch = F.col("key") == CONSUMER_BYTE_RATE
    found = {
        "shared-meter": (F.col("clients") > 1) & is_throttled,
        "suppressed-demand": was_shaped & rises,
        "shaped-arrivals": was_shaped,
        "request-time": F.col("key") == REQUEST_PERCENTAGE,
        "large-requests": is_throttled & (F.col("largest") > F.col("limit")),
        "borderline": (F.col("peak") >= _NEAR) & (F.col("peak") <= 2 - _NEAR),
        "fetch-waits": is_fetch & is_throttled & F.lit(grain == "cell"),
        "amounts": F.col("unknown_amounts") > 0,
        "coarse-cells": (F.col("cell_ms") > 1000) & F.lit(grain == "cell"),
    }
    names = F.array(*(F.when(F.coalesce(holds, F.lit(False)), F.lit(name)) for name, holds in found.items()))
    return F.array_compact(names)
