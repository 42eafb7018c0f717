"""Who was throttled, when, and by which limit: episodes of told throttle times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from kquota.config import BrokerConfig
from kquota.pipeline.dataset.tables import THROTTLED
from kquota.pipeline.limits.clients import CLIENT_TEXT
from kquota.pipeline.limits.identities import IDENTITY, Identity, IdentityIds
from kquota.pipeline.limits.periods import VALIDITY, LimitPeriods, has_periods
from kquota.pipeline.meters.meter_series import is_sampled, known_sums, to_counts
from kquota.pipeline.meters.rates import window_seconds
from kquota.pipeline.spark.group_by_meter import Cells, Ints, group_by_meter
from kquota.pipeline.spark.lazy_values import LazyValue
from kquota.pipeline.spark.shuffle import group_starts
from kquota.quotas import CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE

if TYPE_CHECKING:
    from kquota.pipeline.spark.parquet_source import ArrowSource

__all__ = ["AMBIGUOUS", "UNEXPLAINED", "to_throttled"]

AMBIGUOUS: Final = "ambiguous"
"""More than one limit could have caused it: the log does not mark throttles of a request percentage."""
UNEXPLAINED: Final = "unexplained"
"""No limit in the quotas given could have caused it: they are not those that were in force."""

MAX_CLIENTS: Final = 1000

_OTHERS: Final = (REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
"""Keys whose throttles may stand under another."""
_COUNTS: Final = ("throttled_requests", "throttle_ms", "throttle_max_ms")
_COLUMNS: Final = (*IDENTITY, "broker_id", "cell_start_ms", "cell_ms", "source", *_COUNTS)
_CELL: Final = np.dtype(
    [
        ("meter", np.int32),
        ("client", np.int32),
        ("broker_id", np.int32),
        ("ambiguous", np.bool_),
        ("start_ms", np.int64),
        ("end_ms", np.int64),
        *((name, np.float64) for name in _COUNTS),
    ]
)
_SCHEMA: Final = to_arrow_schema(THROTTLED.schema)


def to_throttled(usage: ArrowSource, clients: DataFrame, broker_config: BrokerConfig) -> DataFrame:
    """The `throttled` table: one row per broker, meter, key and episode.

    An episode ends when no request of the meter was throttled for ``quota.window.num`` x size seconds. The cause is
    the key of the only limit that could apply; where the byte rate or mutation rate and the request percentage of a
    client are both limited it is :data:`AMBIGUOUS` (unless it is longer than a request percentage can throttle), and
    the episode stands once for each meter that it may be. So throttle times must not be summed over this table;
    `usage` and `clients` hold each once. Where limits changed, a throttle is that of a limit in force at its time.

    A broker's metrics say of which limit a throttle was, but that one of topic changes stands under request time; how
    many requests there were, and how long they waited in all, they do not say: null.

    :param usage: rows of the `usage` table.
    :param clients: the resolved totals of the same usage.
    """
    spark = clients.sparkSession
    candidates = LazyValue.of(_may_throttle(clients), _ThrottleCandidates.of)
    return THROTTLED.conform(
        group_by_meter(
            spark,
            usage,
            _COLUMNS,
            candidates,
            lambda batch, known: _attribute(batch, known, broker_config),
            lambda cells, known: _episodes(cells, known, broker_config),
            _SCHEMA,
        )
    )


@dataclass(frozen=True, slots=True)
class _ThrottleCandidates:
    """Throttled identities, numbered, and the meters that each may have been throttled by, period by period."""

    numbers: IdentityIds
    periods: LimitPeriods
    own: Ints
    """By identity and period: the meter of its key, or what stands for none."""
    percentage: Ints
    """By identity and period: the meter of its request percentage, -1 for none (as on that key itself, where it is
    its own)."""
    mutation: Ints
    """By identity and period: of a request percentage the meter of its mutations, -1 for none and on all other keys."""
    client: Ints
    """By identity: its place in `clients`."""
    clients: Sequence[str]
    """Texts, sorted."""
    meters: pa.Table
    """cluster, meter (null for none), key."""

    @classmethod
    def of(cls, clients: pa.Table) -> Self:
        """Those of rows of :func:`_may_throttle`."""
        rows = clients.to_pylist()
        periods = LimitPeriods.of(rows)
        throttled = [row for row in rows if row["is_throttled"]]
        texts = sorted({row[CLIENT_TEXT] for row in throttled})
        place = {text: number for number, text in enumerate(texts)}
        meters: dict[tuple[str, str | None, str], int] = {}

        def number_of(row: dict[str, Any]) -> int:
            return meters.setdefault((row["cluster"], row["meter"], row["key"]), len(meters))

        none = [-1] * periods.count
        by_client: dict[str, dict[tuple[str | None, ...], list[int]]] = {key: {} for key in _OTHERS}
        for row in rows:
            if row["key"] in _OTHERS and row["meter"] is not None:
                of_period = by_client[row["key"]].setdefault(_client_of(row), list(none))
                periods.fill(of_period, row, number_of(row))
        numbers: dict[Identity, int] = {}
        own: list[list[int]] = []
        percentage: list[list[int]] = []
        mutation: list[list[int]] = []
        client: list[int] = []
        for row in throttled:
            number = numbers.setdefault(tuple(row[name] for name in IDENTITY), len(own))
            if number == len(own):
                own.append(list(none))
                is_own = row["key"] == REQUEST_PERCENTAGE
                percentage.append(none if is_own else by_client[REQUEST_PERCENTAGE].get(_client_of(row), none))
                mutation.append(by_client[CONTROLLER_MUTATION_RATE].get(_client_of(row), none) if is_own else none)
                client.append(place[row[CLIENT_TEXT]])
            periods.fill(own[number], row, number_of(row))
        named = pa.schema([_SCHEMA.field(name) for name in ("cluster", "meter", "key")])
        names = [dict(zip(named.names, meter, strict=True)) for meter in meters]
        return cls(
            numbers=IdentityIds.of_mapping(numbers),
            periods=periods,
            own=np.array(own, np.int64).reshape(-1, periods.count),
            percentage=np.array(percentage, np.int64).reshape(-1, periods.count),
            mutation=np.array(mutation, np.int64).reshape(-1, periods.count),
            client=np.array(client, np.int64),
            clients=texts,
            meters=pa.Table.from_pylist(names, named),
        )


def _may_throttle(clients: DataFrame) -> DataFrame:
    """Of resolved clients those that were throttled, and those with a limit whose throttles may stand under another."""
    is_other = F.col("key").isin(*_OTHERS) & F.col("meter").isNotNull()
    is_throttled = F.greatest(*(F.coalesce(name, F.lit(0)) for name in _COUNTS)) > 0
    columns = [*IDENTITY, "meter", CLIENT_TEXT, *(VALIDITY if has_periods(clients) else ())]
    return clients.where(is_throttled | is_other).select(*columns, is_throttled.alias("is_throttled"))


def _client_of(row: dict[str, str | None]) -> tuple[str | None, ...]:
    return tuple(row[name] for name in IDENTITY if name != "key")


def _attribute(batch: pa.RecordBatch, candidates: _ThrottleCandidates, broker_config: BrokerConfig) -> Cells:
    """Of usage rows the throttled ones, once for each meter that may have been the cause.

    :raises ValueError: a client is not among the resolved ones.
    """
    is_throttled = [pc.fill_null(pc.greater(batch.column(name), 0), False) for name in _COUNTS]
    batch = batch.filter(pc.or_(pc.or_(*is_throttled[:2]), is_throttled[2]))
    identity = candidates.numbers.of(batch)
    if (identity < 0).any():
        raise ValueError("throttled usage of a client that was not resolved: resolve the clients of this usage")
    columns = {
        name: pc.fill_null(batch.column(name).cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False)
        for name in _COUNTS
    }
    columns["client"] = candidates.client[identity]
    columns["broker_id"] = batch.column("broker_id").to_numpy(zero_copy_only=False)
    columns["start_ms"] = batch.column("cell_start_ms").to_numpy(zero_copy_only=False)
    columns["end_ms"] = columns["start_ms"] + batch.column("cell_ms").to_numpy(zero_copy_only=False)

    period = candidates.periods.at(columns["start_ms"])
    # A log tells throttles on the key of the API, whichever limit they are of; metrics tell them on the limit's, but
    # those of mutations on the request time (KafkaApis, ControllerMutationQuotaManager).
    own, is_told = candidates.own[identity, period], is_sampled(batch.column("source"))
    other = np.where(is_told, candidates.mutation[identity, period], candidates.percentage[identity, period])
    is_limited = candidates.meters["meter"].is_valid().to_numpy()[own]
    # A request percentage throttles for one window at most (ClientRequestQuotaManager).
    is_too_long = columns["throttle_max_ms"] > broker_config.quota_window_size_seconds * 1000
    are_all_too_long = is_too_long & (columns["throttled_requests"] == 1)
    may_be_other = (other >= 0) & ~(is_limited & are_all_too_long & ~is_told)
    may_be_own = is_limited & ~(is_told & is_too_long & (other >= 0)) | ~may_be_other

    def cells(rows: Ints, meter: Ints, is_ambiguous: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Cells:
        some = np.empty(len(rows), _CELL)
        some["meter"] = meter[rows]
        some["ambiguous"] = is_ambiguous[rows]
        for name, values in columns.items():
            some[name] = values[rows]
        return some

    return np.concatenate(
        [
            cells(np.flatnonzero(may_be_own), own, is_limited & (other >= 0) & ~is_too_long),
            cells(np.flatnonzero(may_be_other), other, is_limited & ~(is_told & is_too_long)),
        ]
    )


def _episodes(cells: Cells, candidates: _ThrottleCandidates, broker_config: BrokerConfig) -> pa.Table:
    """Rows of the `throttled` table from the cells of some meters."""
    cells = cells.take(np.lexsort((cells["start_ms"], cells["broker_id"], cells["meter"])))
    names = candidates.meters
    pause_ms = window_seconds(names["key"], broker_config)[cells["meter"]] * 1000
    begins = np.zeros(len(cells), np.bool_)
    begins[group_starts(cells["meter"], cells["broker_id"])] = True
    begins[1:] |= cells["start_ms"][1:] - cells["end_ms"][:-1] >= pause_ms[1:]
    starts = np.flatnonzero(begins)
    of_episode = names.take(pa.array(cells["meter"][starts]))
    # One request that only this limit explains makes the whole episode this limit's.
    is_ambiguous = pa.array(np.logical_and.reduceat(cells["ambiguous"], starts))
    explained = pc.if_else(is_ambiguous, AMBIGUOUS, of_episode["key"].combine_chunks())
    columns = {
        **{name: of_episode[name] for name in names.schema.names},
        "broker_id": cells["broker_id"][starts],
        "cause": pc.if_else(of_episode["meter"].is_valid().combine_chunks(), explained, UNEXPLAINED),
        "start_ms": cells["start_ms"][starts],
        "end_ms": np.maximum.reduceat(cells["end_ms"], starts),
        "requests": to_counts(known_sums(cells["throttled_requests"], starts)),
        "throttle_ms": to_counts(known_sums(cells["throttle_ms"], starts)),
        "throttle_max_ms": to_counts(np.fmax.reduceat(cells["throttle_max_ms"], starts)),
        "clients": _clients(np.cumsum(begins) - 1, cells["client"], candidates.clients),
    }
    return pa.table({name: columns[name] for name in _SCHEMA.names})


def _clients(episode: Ints, client: Ints, texts: Sequence[str]) -> pa.ListArray:
    """By episode the distinct texts of its clients, sorted; at most :data:`MAX_CLIENTS`."""
    distinct = np.unique(episode << 32 | client)  # by episode, and by text: their numbers are in order
    starts = group_starts(distinct >> 32)
    place = np.arange(len(distinct)) - np.repeat(starts, np.diff(np.append(starts, len(distinct))))
    kept = distinct[place < MAX_CLIENTS]
    offsets = np.append(group_starts(kept >> 32), len(kept))
    values = pa.array(texts, pa.string()).take(pa.array(kept & 0xFFFFFFFF))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
