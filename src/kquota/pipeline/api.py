"""The public functions of :mod:`kquota.pipeline`: request logs, usage and limits as DataFrames.

Each takes frames with the columns of kquota's tables (docs/reference/tables.md) and gives one, in the session that they
are of. None of them runs a job, changes a setting or persists anything: a frame that is used more than once, such as
the usage that was read from logs, is worth persisting::

    requests = read_request_log(spark, "s3://logs/broker-*.log").persist()
    used = usage(requests)
    clients = resolve(used, quotas)
    utilisation(used, clients).orderBy(F.desc("rate_max")).show()

Quotas are a :class:`~kquota.files.QuotaFile`, or a :class:`~kquota.files.QuotaTimeline` where they changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from pyspark.sql import functions as F

from kquota.config import BrokerConfig
from kquota.files import QuotaFile, QuotaTimeline
from kquota.pipeline.advice.curve import Grid
from kquota.pipeline.advice.recommended_limits import RecommendationGoal, recommended, swept
from kquota.pipeline.advice.what_if_frames import simulate_both
from kquota.pipeline.calibration.replayed_throttles import to_calibration, to_replayed_throttles
from kquota.pipeline.dataset.tables import ALL_TABLES
from kquota.pipeline.ingest.request_log.frames import to_rejected, to_requests
from kquota.pipeline.ingest.request_log.log_files import InputSplit
from kquota.pipeline.ingest.request_log.log_reader import LogReader, Mode, find_splits
from kquota.pipeline.ingest.request_log.usage_frame import to_usage
from kquota.pipeline.ingest.time_zone import check_time_zone
from kquota.pipeline.limits.step import resolved
from kquota.pipeline.limits.totals import to_client_totals
from kquota.pipeline.meters.episodes import to_throttled
from kquota.pipeline.meters.rates import to_utilisation
from kquota.pipeline.owners.by_owner import to_client_days, to_showback, with_owners
from kquota.pipeline.simulation.arrivals import Arrivals
from kquota.pipeline.spark.workers import default_parallelism
from kquota.policy import OwnerMap

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kquota.quotas import QuotaSnapshot

__all__ = [
    "calibrate",
    "read_request_log",
    "recommend",
    "rejected",
    "resolve",
    "showback",
    "sweep",
    "throttled",
    "usage",
    "utilisation",
    "what_if",
    "with_timestamps",
]

_DEFAULTS: Final = BrokerConfig()
_ARRIVALS: Final = Arrivals()
_GRID: Final = Grid()
_NO_OWNERS: Final = OwnerMap(())
_MOMENT: Final = "ms since 1970"


def read_request_log(
    spark: SparkSession,
    url: str | Iterable[str],
    *,
    broker_id: int = 0,
    timezone: str = "UTC",
    cluster: str = "",
    envelope: str = "",
    topics: Mapping[str, int] | None = None,
    num_partitions: int = 1,
    mode: Mode = "permissive",
) -> DataFrame:
    """Request logs of brokers as rows of `requests`: one per request and key that it was charged to.

    Connections are rows, too, of connection_creation_rate: one for each, at the time that it was first seen.

    :param url: of logs, plain, gzip or zstd; a pattern may say which broker each is of (``logs/{broker}/*.log``).
    :param broker_id: of logs whose pattern does not say it.
    :param timezone: IANA name of the zone that the brokers logged in.
    :param cluster: its name, for the column `cluster`.
    :param envelope: the field that holds each line, where a shipper wrapped them in JSON.
    :param topics: partition counts of topics from before the logs begin: what deleting them cost.
    :param num_partitions: the brokers' ``num.partitions``.
    :param mode: ``permissive`` leaves lines out that cannot be read, for :func:`rejected`; ``failfast`` makes the job
        fail at the first.
    :raises InputError: there is no such log, or an argument cannot be used.
    """
    splits = _splits(spark, url, broker_id, timezone, envelope)
    return to_requests(spark, splits, LogReader(timezone, cluster, topics or {}, num_partitions, mode))


def rejected(
    spark: SparkSession,
    url: str | Iterable[str],
    *,
    broker_id: int = 0,
    timezone: str = "UTC",
    cluster: str = "",
    envelope: str = "",
) -> DataFrame:
    """The lines that :func:`read_request_log` leaves out, as the table `rejected`: where each is, and why.

    :raises InputError: as there.
    """
    splits = _splits(spark, url, broker_id, timezone, envelope)
    return to_rejected(spark, splits, LogReader(timezone, cluster))


def _splits(
    spark: SparkSession, url: str | Iterable[str], broker_id: int, timezone: str, envelope: str
) -> list[InputSplit]:
    urls = [url] if isinstance(url, str) else list(url)
    parallelism = default_parallelism(spark)
    return find_splits(urls, parallelism=parallelism, broker_id=broker_id, timezone=timezone, envelope=envelope)


def usage(requests: DataFrame) -> DataFrame:
    """The table `usage`: what each client used of each key, a row for each second.

    :param requests: as :func:`read_request_log` gives them.
    """
    return to_usage(requests)


def resolve(
    usage: DataFrame,
    quotas: QuotaFile | QuotaTimeline,
    *,
    broker: BrokerConfig = _DEFAULTS,
    start_ms: int | None = None,
) -> DataFrame:
    """Who is in the usage, and the limit that binds each: one row per cluster, user, client_id, ip and key.

    Columns: those of `clients` but for the first and last seen, `client` and `kafka_meter`. Where the quotas changed,
    there is a row for each time in which the limit of a client stayed the same: valid_from_ms, valid_to_ms, is_latest.

    :param usage: rows of `usage`.
    :param start_ms: when the recording begins. Quotas that begin later do not say what was in force before.
    """
    timeline = quotas if isinstance(quotas, QuotaTimeline) else QuotaTimeline.always(quotas)
    return resolved(to_client_totals(usage), timeline, start_ms, broker)


def utilisation(usage: DataFrame, clients: DataFrame, *, broker: BrokerConfig = _DEFAULTS) -> DataFrame:
    """The table `utilisation`: how close each meter came to its limit, a row for each broker, meter and key.

    :param clients: as :func:`resolve` gives them, of the same usage.
    """
    return to_utilisation(usage, clients, broker)


def throttled(usage: DataFrame, clients: DataFrame, *, broker: BrokerConfig = _DEFAULTS) -> DataFrame:
    """The table `throttled`: who was throttled, when, and by which limit, a row for each episode.

    :param clients: as :func:`resolve` gives them, of the same usage.
    """
    return to_throttled(usage, clients, broker)


def calibrate(requests: DataFrame, clients: DataFrame, *, broker: BrokerConfig = _DEFAULTS) -> DataFrame:
    """The table `calibration`: how close Kafka's arithmetic on these requests comes to the throttle times in the log.

    :param clients: as :func:`resolve` gives them, of the usage of the same requests.
    """
    logged = requests.where(F.col("seq").isNotNull())  # connections are no requests
    return to_calibration(to_replayed_throttles(logged, clients, broker))


def what_if(
    usage: DataFrame,
    new: QuotaFile,
    *,
    old: QuotaFile | None = None,
    requests: DataFrame | None = None,
    arrivals: Arrivals = _ARRIVALS,
    only_changed: bool = False,
    is_recorded: bool = True,
    broker: BrokerConfig = _DEFAULTS,
) -> DataFrame:
    """The table `whatif`: what other quotas would have done to the usage, a row for each broker, meter and key.

    :param old: the quotas to compare with; none are no limits.
    :param requests: all that the usage is made of: they are then simulated one by one, and not second by second.
    :param only_changed: leave out meters that nothing changes for.
    :param is_recorded: whether `old` were in force when the usage was recorded, so that throttling in it is theirs.
    """
    simulated = simulate_both(
        usage,
        to_client_totals(usage),
        _snapshot(old),
        new.snapshot(),
        requests=requests,
        arrivals=arrivals,
        broker_config=broker,
        is_recorded=is_recorded,
        only_changed=only_changed,
    )
    return simulated.what_if


def sweep(
    usage: DataFrame,
    quotas: QuotaFile | None = None,
    *,
    grid: Grid = _GRID,
    arrivals: Arrivals = _ARRIVALS,
    unlimited_by: str | None = None,
    broker: BrokerConfig = _DEFAULTS,
) -> DataFrame:
    """The table `curve`: what many limits would do to each meter, a row for each broker, meter, key and limit.

    :param quotas: what clients are measured by.
    :param unlimited_by: what clients without a limit would be: ``user``, ``client-id`` or ``user,client-id``; without
        it they are left out.
    """
    clients = to_client_totals(usage)
    return swept(
        usage,
        clients,
        _snapshot(quotas),
        grid=grid,
        arrivals=arrivals,
        broker_config=broker,
        unlimited_by=unlimited_by,
    )


def recommend(
    usage: DataFrame,
    quotas: QuotaFile | None = None,
    *,
    goal: RecommendationGoal,
    owners: OwnerMap = _NO_OWNERS,
    grid: Grid = _GRID,
    arrivals: Arrivals = _ARRIVALS,
    unlimited_by: str | None = None,
    broker: BrokerConfig = _DEFAULTS,
) -> DataFrame:
    """The table `recommendations`: the limit to set for each rule, and what it would do, a row for each rule and key.

    :param quotas: the rules there are.
    :param unlimited_by: as for :func:`sweep`: their clients get a rule of their own.
    """
    return recommended(
        usage,
        to_client_totals(usage),
        _snapshot(quotas),
        goal,
        owners,
        grid=grid,
        arrivals=arrivals,
        broker_config=broker,
        unlimited_by=unlimited_by,
    )


def showback(
    usage: DataFrame, owners: OwnerMap, clients: DataFrame | None = None, *, timezone: str = "UTC"
) -> DataFrame:
    """The table `showback`: who used how much, a row for each owner, day and key.

    :param clients: as :func:`resolve` gives them, for the column `limit`.
    :param timezone: IANA name of the zone whose days count.
    :raises InputError: there is no such zone.
    """
    check_time_zone(timezone)
    return to_showback(with_owners(to_client_days(usage, ZoneInfo(timezone)), owners), clients)


def with_timestamps(table: DataFrame) -> DataFrame:
    """Add a timestamp beside each column of milliseconds since 1970: `cell_start` for `cell_start_ms`."""
    moments = {column.name for one in ALL_TABLES.values() for column in one.fields if column.unit == _MOMENT}
    return table.withColumns(
        {
            name.removesuffix("_ms"): F.timestamp_micros((F.col(name) * 1000).cast("long"))
            for name in table.columns
            if name in moments
        }
    )


def _snapshot(quotas: QuotaFile | None) -> QuotaSnapshot:
    return {} if quotas is None else quotas.snapshot()
