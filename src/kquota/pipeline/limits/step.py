"""The step `resolve`: `usage` and quotas to `clients`, and to `limits` where those changed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from kquota.config import BrokerConfig
from kquota.files import QuotaTimeline
from kquota.pipeline.dataset.summary import QuotaPeriodRead, QuotasOverTimeRead
from kquota.pipeline.dataset.tables import CLIENTS, LIMITS
from kquota.pipeline.limits.clients import KAFKA_METER, Period, with_limits, with_limits_over_time
from kquota.pipeline.limits.periods import IS_LATEST, has_periods, latest_limits
from kquota.pipeline.limits.totals import to_client_totals
from kquota.pipeline.spark.persisted_frames import persist

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from kquota.pipeline.dataset.run import Run

__all__ = ["resolve", "resolved", "resolved_clients"]


def resolve(run: Run, quotas: QuotaTimeline) -> DataFrame:
    """Resolve the limits of all clients; returns these clients, persisted.

    :param quotas: those in force while the usage was recorded.
    """
    with run.stage("resolve the limits"), ThreadPoolExecutor(1, "clients") as pool:
        clients = resolved_clients(run, quotas)
        have_periods = has_periods(clients)
        written = pool.submit(run.write, CLIENTS.name, latest_limits(clients).select(*CLIENTS.columns))
        known = (F.col("user").isNotNull() & F.col("client_id").isNotNull()) | F.col("ip").isNotNull()

        def once(column: str) -> Column:
            return F.when(F.col(IS_LATEST), F.col(column)) if have_periods else F.col(column)

        totals = clients.agg(
            F.count_distinct(F.when(F.col("ip").isNull() & known, F.struct("user", "client_id"))).alias("clients"),
            F.count_distinct(F.when(F.col(KAFKA_METER).isNotNull(), F.struct("key", KAFKA_METER))).alias("meters"),
            F.count_distinct(F.when(F.col("meter").isNotNull(), F.struct("key", "meter"))).alias("limited_meters"),
            F.coalesce(F.sum(once("throttle_ms")), F.lit(0)).alias("throttle_ms"),
            F.coalesce(F.sum(once("throttled_requests")), F.lit(0)).alias("throttled_requests"),
        ).first()
        if have_periods:
            run.write(LIMITS.name, clients.select(*LIMITS.columns))
        written.result()
    assert totals is not None
    for name, count in totals.asDict().items():
        setattr(run.summary, name, count)
    run.summary.quotas_over_time = _over_time(quotas)
    run.set_quotas(quotas)
    return clients


def resolved_clients(run: Run, quotas: QuotaTimeline) -> DataFrame:
    """Who is in `usage`, with the limits of these quotas; persisted."""
    totals = to_client_totals(run.source("usage"))
    return persist(resolved(totals, quotas, run.summary.start_ms, run.broker))


def resolved(
    identities: DataFrame, quotas: QuotaTimeline, start_ms: int | None, broker_config: BrokerConfig
) -> DataFrame:
    """Identities with the limits that were in force for them from `start_ms` on; a row for each where they changed."""
    defaults = broker_config.static_defaults
    periods = [Period(valid_from_ms, file.snapshot()) for valid_from_ms, file in quotas.periods]
    if not periods:
        return with_limits(identities, {})
    first_ms = periods[0].valid_from_ms
    if first_ms is None or start_ms is None or first_ms <= start_ms:
        periods[0] = Period(None, periods[0].snapshot)
    else:
        periods.insert(0, Period(None, None))
    if len(periods) == 1:
        return with_limits(identities, periods[0].snapshot or {}, static_defaults=defaults)
    return with_limits_over_time(identities, periods, static_defaults=defaults)


def _over_time(quotas: QuotaTimeline) -> QuotasOverTimeRead | None:
    """What is said of quotas that have a past; nothing of those that are just given."""
    if quotas.recorded_from_ms is None and quotas.periods and quotas.periods[0].valid_from_ms is None:
        return None
    periods = [
        QuotaPeriodRead(period.valid_from_ms, end_ms, len(period.quotas.entries))
        for period, end_ms in quotas.with_ends()
    ]
    return QuotasOverTimeRead(max(0, len(periods) - 1), quotas.recorded_from_ms, periods)
