"""The tables that the pipeline reads and writes: names, grain and columns.

Every table is a directory ``DIR/<name>/`` of Parquet (snappy, UTC). Other tools read these files, so names, types
and units here are a contract. Meters, rules and entities are written in the canonical text of
:meth:`kquota.quotas.ClientQuotaEntity.to_text`; ``user``, ``client_id`` and ``ip`` are raw names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "CALIBRATION",
    "CLIENTS",
    "CURVE",
    "LIMITS",
    "OCCASIONAL",
    "RECOMMENDATIONS",
    "REJECTED",
    "REQUESTS",
    "SHOWBACK",
    "TABLES",
    "THROTTLED",
    "USAGE",
    "UTILISATION",
    "WHATIF",
    "SchemaMismatchError",
    "Table",
]

_INT, _LONG, _DOUBLE, _TEXT, _DATE = IntegerType(), LongType(), DoubleType(), StringType(), DateType()


class SchemaMismatchError(TypeError):
    """A DataFrame does not have the columns of the table it is meant to be."""


@dataclass(frozen=True, slots=True)
class Table:
    """One named table: its grain in words, its schema, and the columns its files are partitioned by."""

    name: str
    grain: str
    schema: StructType
    partition_by: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """The names, in order."""
        return list(self.schema.fieldNames())

    def conform(self, frame: DataFrame) -> DataFrame:
        """Put the columns of `frame` into this table's order.

        :raises SchemaMismatchError: a column is missing, is not part of the table, or has another type.
        """
        actual = {field.name: field.dataType.simpleString() for field in frame.schema}
        wanted = {field.name: field.dataType.simpleString() for field in self.schema}
        if actual != wanted:
            differing = sorted(name for name in actual.keys() | wanted.keys() if actual.get(name) != wanted.get(name))
            details = ", ".join(
                f"{name}: {actual.get(name, 'absent')}, expected {wanted.get(name, 'absent')}" for name in differing
            )
            raise SchemaMismatchError(f"not a {self.name} table: {details}")
        return frame.select(*self.columns)


def _table(name: str, grain: str, *columns: tuple[str, DataType], partition_by: tuple[str, ...] = ()) -> Table:
    return Table(name, grain, StructType([StructField(*column) for column in columns]), partition_by)


_CLIENT: Final = (("user", _TEXT), ("client_id", _TEXT), ("ip", _TEXT))

REQUESTS: Final = _table(
    "requests",
    "logged client request and key",
    ("cluster", _TEXT),
    ("broker_id", _INT),
    ("connection", _TEXT),
    ("seq", _LONG),
    ("end_ms", _DOUBLE),
    ("record_ms", _DOUBLE),
    ("api_key", _INT),
    ("api_version", _INT),
    *_CLIENT,
    ("key", _TEXT),
    ("amount", _DOUBLE),
    ("local_ms", _DOUBLE),
    ("remote_ms", _DOUBLE),
    ("throttle_ms", _LONG),
    ("listener", _TEXT),
)

USAGE: Final = _table(
    "usage",
    "broker, second, client, key",
    ("cluster", _TEXT),
    ("broker_id", _INT),
    ("cell_start_ms", _LONG),
    ("cell_ms", _INT),
    ("source", _TEXT),
    ("grain", _TEXT),
    *_CLIENT,
    ("key", _TEXT),
    ("amount", _DOUBLE),
    ("amount_max", _DOUBLE),
    ("requests", _LONG),
    ("connections", _INT),
    ("throttled_requests", _LONG),
    ("throttle_ms", _LONG),
    ("throttle_max_ms", _LONG),
    ("unknown_amounts", _LONG),
    ("date", _DATE),
    partition_by=("date",),
)

CLIENTS: Final = _table(
    "clients",
    "client, key",
    ("cluster", _TEXT),
    *_CLIENT,
    ("key", _TEXT),
    ("amount", _DOUBLE),
    ("requests", _LONG),
    ("throttled_requests", _LONG),
    ("throttle_ms", _LONG),
    ("unknown_amounts", _LONG),
    ("limit", _DOUBLE),
    ("limit_source", _TEXT),
    ("level", _INT),
    ("meter", _TEXT),
)

LIMITS: Final = _table(
    "limits",
    "client, key, stretch of time in which its limit stayed the same",
    ("cluster", _TEXT),
    *_CLIENT,
    ("key", _TEXT),
    ("valid_from_ms", _LONG),
    ("valid_to_ms", _LONG),
    ("limit", _DOUBLE),
    ("limit_source", _TEXT),
    ("level", _INT),
    ("meter", _TEXT),
)

UTILISATION: Final = _table(
    "utilisation",
    "broker, meter, key",
    ("cluster", _TEXT),
    ("broker_id", _INT),
    ("meter", _TEXT),
    ("key", _TEXT),
    ("limit", _DOUBLE),
    ("limit_source", _TEXT),
    ("rate_mean", _DOUBLE),
    ("rate_p50", _DOUBLE),
    ("rate_p95", _DOUBLE),
    ("rate_p99", _DOUBLE),
    ("rate_max", _DOUBLE),
    ("peak_1s", _DOUBLE),
    ("seconds_active", _LONG),
    ("seconds_over_80", _LONG),
    ("seconds_over_100", _LONG),
    ("requests", _LONG),
    ("throttled_requests", _LONG),
    ("throttle_ms", _LONG),
    ("unknown_amounts", _LONG),
)

THROTTLED: Final = _table(
    "throttled",
    "broker, meter, key, episode",
    ("cluster", _TEXT),
    ("broker_id", _INT),
    ("meter", _TEXT),
    ("key", _TEXT),
    ("cause", _TEXT),
    ("start_ms", _LONG),
    ("end_ms", _LONG),
    ("requests", _LONG),
    ("throttle_ms", _LONG),
    ("throttle_max_ms", _LONG),
    ("clients", ArrayType(_TEXT)),
)

CALIBRATION: Final = _table(
    "calibration",
    "broker, meter, key",
    ("cluster", _TEXT),
    ("broker_id", _INT),
    ("meter", _TEXT),
    ("key", _TEXT),
    ("throttled_requests", _LONG),
    ("predicted_requests", _LONG),
    ("false_negatives", _LONG),
    ("false_positives", _LONG),
    ("within_5ms_or_5pct", _DOUBLE),
    ("error_p50_ms", _DOUBLE),
    ("error_p99_ms", _DOUBLE),
    ("throttle_ms_logged", _LONG),
    ("throttle_ms_predicted", _LONG),
    ("predicted_low_ms", _LONG),
    ("predicted_high_ms", _LONG),
    ("within_as_logged", _DOUBLE),
    ("not_compared", _LONG),
)

REJECTED: Final = _table(
    "rejected",
    "input line that could not be used",
    ("cluster", _TEXT),
    ("file", _TEXT),
    ("line", _LONG),
    ("reason", _TEXT),
    ("sample", _TEXT),
)

_BOOLEAN: Final = BooleanType()

WHATIF: Final = _table(
    "whatif",
    "broker, meter, key, candidate",
    ("cluster", _TEXT),
    ("broker_id", _INT),
    ("meter", _TEXT),
    ("key", _TEXT),
    ("limit_old", _DOUBLE),
    ("limit_new", _DOUBLE),
    ("model", _TEXT),
    ("grain", _TEXT),
    ("amount_old", _DOUBLE),
    ("amount_new", _DOUBLE),
    ("throttled_requests", _LONG),
    ("throttled_ms", _DOUBLE),
    ("throttled_share", _DOUBLE),
    ("max_delay_ms", _DOUBLE),
    ("total_delay_ms", _DOUBLE),
    ("backlog_max", _DOUBLE),
    ("previous_meters", _TEXT),
    ("newly_throttled", _BOOLEAN),
    ("no_longer_throttled", _BOOLEAN),
    ("unknowns", ArrayType(_TEXT)),
)

CURVE: Final = _table(
    "curve",
    "broker, meter, key, candidate",
    ("cluster", _TEXT),
    ("broker_id", _INT),
    ("meter", _TEXT),
    ("key", _TEXT),
    ("limit", _DOUBLE),
    ("throttled_share", _DOUBLE),
    ("throttled_ms", _DOUBLE),
    ("max_delay_ms", _DOUBLE),
    ("amount", _DOUBLE),
    ("unknown_amounts", _LONG),
)

RECOMMENDATIONS: Final = _table(
    "recommendations",
    "entity, key",
    ("cluster", _TEXT),
    ("entity", _TEXT),
    ("key", _TEXT),
    ("value_now", _DOUBLE),
    ("value_new", _DOUBLE),
    ("reason", _TEXT),
    ("predicted_throttled_share", _DOUBLE),
    ("predicted_max_delay_ms", _DOUBLE),
    ("predicted_throttled_requests", _LONG),
    ("owner", _TEXT),
)

SHOWBACK: Final = _table(
    "showback",
    "owner, date, key",
    ("cluster", _TEXT),
    ("owner", _TEXT),
    ("date", _DATE),
    ("key", _TEXT),
    ("amount", _DOUBLE),
    ("limit", _DOUBLE),
    ("share", _DOUBLE),
    ("unknown_amounts", _LONG),
)

TABLES: Final = {
    table.name: table for table in (REQUESTS, USAGE, CLIENTS, UTILISATION, THROTTLED, CALIBRATION, REJECTED)
}
"""What every analysis writes."""

OCCASIONAL: Final = {table.name: table for table in (LIMITS, SHOWBACK, WHATIF, CURVE, RECOMMENDATIONS)}
"""What a directory has besides where limits changed, or where a step was asked for."""
