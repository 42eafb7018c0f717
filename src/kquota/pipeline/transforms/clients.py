"""Clients and what binds them: usage summed per client and key, with the limit that the rules give it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from kquota.pipeline.tables import CLIENTS, USAGE
from kquota.pipeline.transforms.identities import IDENTITY, plain_strings
from kquota.pipeline.workers import forget_zip_importers
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

if TYPE_CHECKING:
    from kquota.pipeline.arrow_source import ArrowSource, Batches

__all__ = ["CLIENT_TEXT", "KEPT_METER", "to_client_totals", "with_limits"]

CLIENT_TEXT = "client"
"""Column with the canonical text of a client, such as ``user=alice,client-id=etl``; an empty half is left out."""

KEPT_METER = "kept_meter"
"""Column with the meter that Kafka keeps for a client and key, limited or not; null where it keeps none."""


_CLIENT = (*IDENTITY, "grain")
_TOTALS = {
    "throttle_max_ms": "max",
    "amount": "sum",
    "requests": "sum",
    "throttled_requests": "sum",
    "throttle_ms": "sum",
}
"""By column how it is summed up, as both Spark and Arrow call it."""
_HELD_ROWS = 1_000_000


def to_client_totals(usage: ArrowSource) -> DataFrame:
    """Totals per client and key: cluster, user, client_id, ip, key, grain, throttle_max_ms, amount, requests,
    throttled_requests, throttle_ms; of what is known, null where nothing is.

    :param usage: rows of the `usage` table.
    """
    columns = (*_CLIENT, *_TOTALS)
    schema = StructType([USAGE.schema[name] for name in columns])

    def part_sums(batches: Batches) -> Iterator[pa.RecordBatch]:
        held = None
        for batch in batches:
            sums = plain_strings(_sums(pa.Table.from_batches([batch])))
            held = sums if held is None else _sums(pa.concat_tables([held, sums]))
            if held.num_rows > _HELD_ROWS:
                yield from held.to_batches()
                held = None
        if held is not None:
            yield from held.to_batches()

    parts = usage.select(*columns).mapInArrow(part_sums, schema)
    return parts.groupBy(*IDENTITY).agg(
        F.max("grain").alias("grain"),
        *(getattr(F, how)(name).alias(name) for name, how in _TOTALS.items()),
    )


def _sums(rows: pa.Table) -> pa.Table:
    sums = rows.group_by(list(_CLIENT), use_threads=False).aggregate(list(_TOTALS.items()))
    named = [*_CLIENT, *(f"{name}_{how}" for name, how in _TOTALS.items())]
    return sums.select(named).rename_columns([*_CLIENT, *_TOTALS])


def with_limits(
    identities: DataFrame, snapshot: QuotaSnapshot, *, static_defaults: Mapping[str, float] | None = None
) -> DataFrame:
    """Add limit, limit_source, level and meter (null without a limit), CLIENT_TEXT and KEPT_METER.

    The rules are those of :class:`kquota.quotas.QuotaResolver`, called once per row on whole Arrow batches: give it
    distinct identities, not usage. An identity with an unknown half (null) is not resolved: it is not known which
    rules could bind it. But where `grain` says that it is a broker's own meter of that user, or of that client-id, the
    limit is the one that is counted on just that meter.

    :param identities: any columns, among them user, client_id, ip and key, and if need be `grain`.
    """
    rules = {_plain(entity): dict(values) for entity, values in snapshot.items()}
    defaults = dict(static_defaults or {})
    # Kafka keeps meters of a key only while some rule sets it.
    limited_keys = frozenset(defaults).union(*rules.values())
    columns = identities.columns

    def resolve(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        forget_zip_importers()
        resolver = QuotaResolver(
            {ClientQuotaEntity(dict(entity)): values for entity, values in rules.items()}, static_defaults=defaults
        )
        for batch in batches:
            names = [name for name in ("user", "client_id", "ip", "key", "grain") if name in columns]
            rows = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
            resolved = [_limit_of(resolver, limited_keys, *row) for row in rows]
            limit, source, level, meter, client, kept = zip(*resolved, strict=True) if resolved else ((),) * 6
            yield pa.RecordBatch.from_arrays(
                [
                    *(batch.column(name) for name in columns),
                    pa.array(limit, pa.float64()),
                    pa.array(source, pa.string()),
                    pa.array(level, pa.int32()),
                    pa.array(meter, pa.string()),
                    pa.array(client, pa.string()),
                    pa.array(kept, pa.string()),
                ],
                names=[*columns, "limit", "limit_source", "level", "meter", CLIENT_TEXT, KEPT_METER],
            )

    resolved_fields = [CLIENTS.schema[name] for name in ("limit", "limit_source", "level", "meter")]
    texts = [StructField(CLIENT_TEXT, StringType()), StructField(KEPT_METER, StringType())]
    return identities.mapInArrow(resolve, StructType([*identities.schema.fields, *resolved_fields, *texts]))


def _plain(entity: ClientQuotaEntity) -> tuple[tuple[str, str | None], ...]:
    """An entity as plain values, which travel to any worker."""
    return tuple(entity.entries.items())


def _limit_of(
    resolver: QuotaResolver,
    limited_keys: AbstractSet[str],
    user: str | None,
    client_id: str | None,
    ip: str | None,
    key: str,
    grain: str | None = None,
) -> tuple[float | None, str | None, int | None, str | None, str, str | None]:
    names = {USER: user, CLIENT_ID: client_id, IP: ip}
    client = ClientQuotaEntity({kind: name for kind, name in names.items() if name})
    text = client.to_text() if client.entries else ""
    resolved: ResolvedQuota | None = None
    kept: str | None = None
    if key == CONNECTION_CREATION_RATE:
        if ip is not None:
            resolved = resolver.resolve("", "", ip)[key]
            kept = resolved.meter.to_text() if resolved.meter is not None else None
    elif user is not None and client_id is not None:
        resolved = resolver.resolve_key(key, user, client_id)
        if key in limited_keys:
            tags = zip((USER, CLIENT_ID), resolver.tags(key, user, client_id), strict=True)
            kept = MeterKey({tag: name for tag, name in tags if name}).to_text()
    elif grain in (USER, CLIENT_ID) and (user is None) != (client_id is None):
        own = MeterKey({USER: user or "", CLIENT_ID: client_id or ""})
        kept = own.to_text()
        rule = resolver.rule_of_tags(key, user or "", client_id or "")
        if rule is not None:
            return rule.value, rule.source.to_text(), rule.level, kept, text, kept
    if resolved is None or resolved.value is None or resolved.source is None or resolved.meter is None:
        return None, None, None, None, text, kept
    return resolved.value, resolved.source.to_text(), resolved.level, resolved.meter.to_text(), text, kept
