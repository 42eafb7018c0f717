"""The limits that bind clients: the rules of quotas applied to whole Arrow batches of clients and keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from kquota.pipeline.dataset.tables import CLIENTS
from kquota.pipeline.limits.periods import IS_LATEST, VALID_FROM_MS, VALID_TO_MS, VALIDITY
from kquota.pipeline.spark.workers import drop_zip_importers
from kquota.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    IP,
    USER,
    ClientQuotaEntity,
    MeterKey,
    QuotaResolver,
    QuotaSnapshot,
    ResolvedQuota,
)

__all__ = [
    "CLIENT_TEXT",
    "KAFKA_METER",
    "Period",
    "with_limits",
    "with_limits_by_quota_set",
    "with_limits_over_time",
]

CLIENT_TEXT = "client"
"""Column with the canonical text of a client, such as ``user=alice,client-id=etl``; an empty half is left out."""

KAFKA_METER = "kafka_meter"
"""Column with the meter that Kafka has for a client and key, limited or not; null where it has none."""


class Period(NamedTuple):
    """Quotas, and from when on they were in force: until the next."""

    valid_from_ms: int | None
    """None for the first: since before the log begins."""
    snapshot: QuotaSnapshot | None
    """None where it is not known what was in force."""


def with_limits(
    identities: DataFrame, snapshot: QuotaSnapshot, *, static_defaults: Mapping[str, float] | None = None
) -> DataFrame:
    """Add limit, limit_source, level and meter (null without a limit), CLIENT_TEXT and KAFKA_METER.

    The rules are those of :class:`kquota.quotas.QuotaResolver`, called once per row on whole Arrow batches: give it
    distinct identities, not usage. An identity with an unknown half (null) is not resolved: it is not known which
    rules could bind it. But where `grain` says that it is a broker's own meter of that user, or of that client-id, the
    limit is the one that is counted on just that meter.

    :param identities: any columns, among them user, client_id, ip and key, and if need be `grain`.
    """
    return with_limits_by_quota_set(identities, {"": snapshot}, static_defaults=static_defaults)


def with_limits_by_quota_set(
    identities: DataFrame,
    snapshots: Mapping[str, QuotaSnapshot],
    *,
    static_defaults: Mapping[str, float] | None = None,
) -> DataFrame:
    """As :func:`with_limits`, under each of some quotas.

    :param snapshots: by what is put behind the names of the columns.
    """
    periods = _Periods([Period(None, snapshot) for snapshot in snapshots.values()], static_defaults or {})
    columns, endings = identities.columns, list(snapshots)

    def resolve(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        drop_zip_importers()
        outcomes_of = [periods.outcomes(number) for number in range(len(endings))]
        for batch in batches:
            rows = list(_identity_rows(batch))
            resolved = batch.select(columns)
            for ending, outcome_of in zip(endings, outcomes_of, strict=True):
                resolved = _with_columns(resolved, [outcome_of(*row) for row in rows], ending)
            yield resolved

    fields = [StructField(field.name + ending, field.dataType) for ending in endings for field in _OUTCOME_FIELDS]
    return identities.mapInArrow(resolve, StructType([*identities.schema.fields, *fields]))


def with_limits_over_time(
    identities: DataFrame, periods: Sequence[Period], *, static_defaults: Mapping[str, float] | None = None
) -> DataFrame:
    """As :func:`with_limits`, with a row for each time span in which the limit of an identity stayed the same.

    Three more columns are added: VALID_FROM_MS and VALID_TO_MS of the span, and IS_LATEST.

    :param periods: in the order of time, at least one.
    """
    rules = _Periods(periods, static_defaults or {})
    columns = identities.columns
    starts_ms = [period.valid_from_ms for period in periods]

    def resolve(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        drop_zip_importers()
        read = list(batches)
        spans: list[list[_Spans]] = [[[] for _ in range(batch.num_rows)] for batch in read]
        for number, start_ms in enumerate(starts_ms):
            outcome_of = rules.outcomes(number)  # of one period at a time: each may have very many rules
            for batch, of_rows in zip(read, spans, strict=True):
                for row, of_row in zip(_identity_rows(batch), of_rows, strict=True):
                    outcome = outcome_of(*row)
                    if not of_row or of_row[-1][1] != outcome:
                        of_row.append((start_ms, outcome))
        for batch, of_rows in zip(read, spans, strict=True):
            yield _by_span(batch.select(columns), of_rows)

    validity = [*(StructField(name, LongType()) for name in VALIDITY), StructField(IS_LATEST, BooleanType())]
    return identities.mapInArrow(resolve, StructType([*identities.schema.fields, *_OUTCOME_FIELDS, *validity]))


def _by_span(batch: pa.RecordBatch, spans: Sequence[_Spans]) -> pa.RecordBatch:
    """Each row as often as its limit had another value, with what is added to it.

    :param spans: of each row, at least one.
    """
    rows = np.repeat(np.arange(batch.num_rows), np.array([len(of_row) for of_row in spans], np.int64))
    begins = [start_ms for of_row in spans for start_ms, _ in of_row]
    ends = [end_ms for of_row in spans for end_ms in (*(start_ms for start_ms, _ in of_row[1:]), None)]
    is_latest = [place == latest for of_row in spans for latest in (_latest(of_row),) for place in range(len(of_row))]
    resolved = _with_columns(batch.take(pa.array(rows)), [outcome for of_row in spans for _, outcome in of_row])
    for name, values in ((VALID_FROM_MS, begins), (VALID_TO_MS, ends)):
        resolved = resolved.append_column(name, pa.array(values, pa.int64()))
    return resolved.append_column(IS_LATEST, pa.array(is_latest, pa.bool_()))


def _latest(spans: _Spans) -> int:
    """The place of the last span with a limit, otherwise of the last one."""
    limited = [place for place, (_, outcome) in enumerate(spans) if outcome.limit is not None]
    return limited[-1] if limited else len(spans) - 1


class _Outcome(NamedTuple):
    """What is added to an identity."""

    limit: float | None
    limit_source: str | None
    level: int | None
    meter: str | None
    client: str
    kafka_meter: str | None


_OUTCOME_FIELDS: Final = (
    *(CLIENTS.schema[name] for name in ("limit", "limit_source", "level", "meter")),
    StructField(CLIENT_TEXT, StringType()),
    StructField(KAFKA_METER, StringType()),
)
_OUTCOME_TYPES: Final = (pa.float64(), pa.string(), pa.int32(), *(pa.string(),) * 3)


_Spans = list[tuple[int | None, _Outcome]]
"""Of one identity, when each time span begins in which its limit stayed the same, and what is added in it."""


def _identity_rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """user, client_id, ip, key and, where there is one, grain."""
    names = ["user", "client_id", "ip", "key", *(["grain"] if "grain" in batch.schema.names else [])]
    return zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def _with_columns(batch: pa.RecordBatch, outcomes: Sequence[_Outcome], ending: str = "") -> pa.RecordBatch:
    values = zip(*outcomes, strict=True) if outcomes else ((),) * len(_OUTCOME_FIELDS)
    return pa.RecordBatch.from_arrays(
        [
            *batch.columns,
            *(pa.array(column, kind) for column, kind in zip(values, _OUTCOME_TYPES, strict=True)),
        ],
        names=[*batch.schema.names, *(field.name + ending for field in _OUTCOME_FIELDS)],
    )


class _Periods:
    """The rules of periods as plain values, which travel to any worker; what periods share travels once."""

    def __init__(self, periods: Sequence[Period], static_defaults: Mapping[str, float]) -> None:
        shared: dict[_Rule, _Rule] = {}
        self._rules = [None if one.snapshot is None else _plain_rules(one.snapshot, shared) for one in periods]
        self._defaults = dict(static_defaults)

    def outcomes(self, number: int) -> Callable[[str | None, str | None, str | None, str], _Outcome]:
        """What is added to an identity in a period: a function of user, client_id, ip, key and, if known, grain."""
        rules = self._rules[number]
        if rules is None:
            return lambda user, client_id, ip, *_: _Outcome(
                None, None, None, None, _client_text(user, client_id, ip), None
            )
        resolver = QuotaResolver(
            {ClientQuotaEntity(dict(entity)): dict(values) for entity, values in rules}, static_defaults=self._defaults
        )
        # Kafka keeps meters of a key only while some rule sets it.
        limited_keys = frozenset(self._defaults).union(key for _, values in rules for key, _ in values)
        return partial(_outcome_of, resolver, limited_keys)


_Rule = tuple[tuple[tuple[str, str | None], ...], tuple[tuple[str, float], ...]]
"""An entity and its values."""


def _plain_rules(snapshot: QuotaSnapshot, shared: dict[_Rule, _Rule]) -> list[_Rule]:
    rules = [(tuple(entity.entries.items()), tuple(values.items())) for entity, values in snapshot.items()]
    return [shared.setdefault(rule, rule) for rule in rules]


def _outcome_of(
    resolver: QuotaResolver,
    limited_keys: AbstractSet[str],
    user: str | None,
    client_id: str | None,
    ip: str | None,
    key: str,
    grain: str | None = None,
) -> _Outcome:
    text = _client_text(user, client_id, ip)
    resolved: ResolvedQuota | None = None
    kafka_meter: str | None = None
    if key == CONNECTION_CREATION_RATE:
        if ip is not None:
            resolved = resolver.resolve("", "", ip)[key]
            kafka_meter = resolved.meter.to_text() if resolved.meter is not None else None
    elif user is not None and client_id is not None:
        resolved = resolver.resolve_key(key, user, client_id)
        if key in limited_keys:
            tags = zip((USER, CLIENT_ID), resolver.tags(key, user, client_id), strict=True)
            kafka_meter = MeterKey({tag: name for tag, name in tags if name}).to_text()
    elif grain in (USER, CLIENT_ID) and (user is None) != (client_id is None):
        own = MeterKey({USER: user or "", CLIENT_ID: client_id or ""})
        kafka_meter = own.to_text()
        rule = resolver.rule_of_tags(key, user or "", client_id or "")
        if rule is not None:
            return _Outcome(rule.value, rule.source.to_text(), rule.level, kafka_meter, text, kafka_meter)
    if resolved is None or resolved.value is None or resolved.source is None or resolved.meter is None:
        return _Outcome(None, None, None, None, text, kafka_meter)
    return _Outcome(
        resolved.value, resolved.source.to_text(), resolved.level, resolved.meter.to_text(), text, kafka_meter
    )


def _client_text(user: str | None, client_id: str | None, ip: str | None) -> str:
    names = {USER: user, CLIENT_ID: client_id, IP: ip}
    client = ClientQuotaEntity({kind: name for kind, name in names.items() if name})
    return client.to_text() if client.entries else ""
