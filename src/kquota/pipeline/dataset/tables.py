"""The tables of a dataset: names, grain and columns, with the unit and meaning of each. Written once, in Arrow.

Other tools read these files, so names, types and units are a contract. Meters, rules and entities are written in the
canonical text of :meth:`kquota.quotas.ClientQuotaEntity.to_text`; ``user``, ``client_id`` and ``ip`` are raw names:
a principal without its type, a client id that is null on the wire is ''. Everywhere null is unknown and '' is known to
be empty. Units of `amount`: bytes for the byte rates, percent-seconds of one thread for request_percentage, partitions
for controller_mutation_rate, connections for connection_creation_rate; of `limit` the same per second (for
request_percentage, per cent of one thread).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = [
    "ALL_TABLES",
    "CALIBRATION",
    "CLIENTS",
    "CURVE",
    "LIMITS",
    "RECOMMENDATIONS",
    "REJECTED",
    "REQUESTS",
    "SHOWBACK",
    "THROTTLED",
    "USAGE",
    "UTILISATION",
    "WHATIF",
    "Column",
    "SchemaMismatchError",
    "Table",
]

_INT, _LONG, _DOUBLE, _TEXT, _DATE, _BOOL = pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.date32(), pa.bool_()
_TEXTS: Final = pa.list_(pa.string())


class SchemaMismatchError(TypeError):
    """Rows do not have the columns of the table they are meant to be of."""


class Column(NamedTuple):
    """A column; `unit` is empty where there is none, ``amount`` and ``limit`` are explained above."""

    name: str
    type: pa.DataType
    unit: str
    doc: str


@dataclass(frozen=True, slots=True)
class Table:
    """One named table: its grain in words, its columns, and those of them that are in the path of a file instead.

    `time` is a column: the manifest has its least and greatest value in each file.
    """

    name: str
    grain: str
    fields: tuple[Column, ...]
    partition_by: tuple[str, ...] = ()
    time: str = ""

    @property
    def columns(self) -> list[str]:
        """The names, in order."""
        return [column.name for column in self.fields]

    @property
    def arrow_schema(self) -> pa.Schema:
        """All columns."""
        return pa.schema([(column.name, column.type) for column in self.fields])

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of its files: those that are not in their paths."""
        return pa.schema([(column.name, column.type) for column in self.fields if column.name not in self.partition_by])

    @property
    def schema(self) -> StructType:
        """All columns, for Spark."""
        from pyspark.sql.pandas.types import from_arrow_schema  # Spark is loaded only by who asks for it

        return from_arrow_schema(self.arrow_schema)

    def conform(self, frame: DataFrame) -> DataFrame:
        """Put the columns of `frame` into this table's order.

        :raises SchemaMismatchError: a column is missing, is not part of the table, or has another type.
        """
        actual = {field.name: field.dataType.simpleString() for field in frame.schema}
        expected = {field.name: field.dataType.simpleString() for field in self.schema}
        if actual != expected:
            differing = sorted({name for name, _ in actual.items() ^ expected.items()})
            details = ", ".join(
                f"{name}: {actual.get(name, 'absent')}, expected {expected.get(name, 'absent')}" for name in differing
            )
            raise SchemaMismatchError(f"not a {self.name} table: {details}")
        return frame.select(*self.columns)


_CLUSTER: Final = Column("cluster", _TEXT, "", "Name given to the cluster; '' without one")
_BROKER: Final = Column("broker_id", _INT, "", "The broker that the traffic went through")
_USER: Final = Column("user", _TEXT, "", "User of the client, null where it is not known")
_CLIENT_ID: Final = Column("client_id", _TEXT, "", "Its client id, null where it is not known")
_IP: Final = Column("ip", _TEXT, "", "Its address; only for connection_creation_rate, otherwise null")
_CLIENT: Final = (_USER, _CLIENT_ID, _IP)
_KEY: Final = Column("key", _TEXT, "", "Quota key, such as producer_byte_rate")
_METER: Final = Column("meter", _TEXT, "", "What the usage is counted on; clients with the same meter share its limit")
_LIMIT: Final = Column("limit", _DOUBLE, "limit", "Limit in force; null without one")
_LIMIT_SOURCE: Final = Column("limit_source", _TEXT, "", "Entity that the limit is set on, or `static`")
_LEVEL: Final = Column("level", _INT, "", "Place of that entity in Kafka's order of precedence, from 1")
_REQUESTS: Final = Column("requests", _LONG, "requests", "How many requests were counted")
_THROTTLED: Final = Column("throttled_requests", _LONG, "requests", "Of them those that the broker throttled")
_THROTTLE_MS: Final = Column("throttle_ms", _LONG, "ms", "Sum of the throttle times that the broker answered with")
_THROTTLE_MAX_MS: Final = Column("throttle_max_ms", _LONG, "ms", "The longest of them")
_AMOUNT: Final = Column("amount", _DOUBLE, "amount", "Sum of what is known; null where nothing is")
_UNKNOWN: Final = Column("unknown_amounts", _LONG, "requests", "Requests of unknown amount, which are not in the sum")
_METERED: Final = (_CLUSTER, _BROKER, _METER, _KEY)

REQUESTS: Final = Table(
    "requests",
    "logged client request and key",
    (
        _CLUSTER,
        _BROKER,
        Column("connection", _TEXT, "", "Connection id as logged: both addresses and a number"),
        Column("seq", _LONG, "", "Place in the log, in the order of its lines"),
        Column("end_ms", _DOUBLE, "ms since 1970", "When the answer was sent, and the line logged"),
        Column(
            "record_ms",
            _DOUBLE,
            "ms since 1970",
            "When it was counted: end_ms less sending and response queue",
        ),
        Column("api_key", _INT, "", "Kafka's number of the API"),
        Column("api_version", _INT, "", "Version of the request"),
        *_CLIENT,
        _KEY,
        Column("amount", _DOUBLE, "amount", "What was charged; null where it is not known"),
        Column("local_ms", _DOUBLE, "ms", "Time that the leader spent on it"),
        Column("remote_ms", _DOUBLE, "ms", "Time that it waited for others, such as followers or data"),
        Column("throttle_ms", _LONG, "ms", "Throttle time that the broker answered with"),
        Column("listener", _TEXT, "", "Listener that it came in by"),
    ),
    time="record_ms",
)

USAGE: Final = Table(
    "usage",
    "broker, second, client, key",
    (
        _CLUSTER,
        _BROKER,
        Column("cell_start_ms", _LONG, "ms since 1970", "When the cell begins"),
        Column("cell_ms", _INT, "ms", "How long it is: 1000 of a request log, of metrics the time between readings"),
        Column("source", _TEXT, "", "request-log, prometheus, jmx or gateway"),
        Column("grain", _TEXT, "", "What is known of the client: client (all of it), user, client-id or meter"),
        *_CLIENT,
        _KEY,
        _AMOUNT,
        Column("amount_max", _DOUBLE, "amount", "The largest of a single request; null where none is known"),
        _REQUESTS,
        Column("connections", _INT, "connections", "Connections that they came by"),
        _THROTTLED,
        _THROTTLE_MS,
        _THROTTLE_MAX_MS,
        _UNKNOWN,
        Column("date", _DATE, "day in UTC", "Day that the cell begins in"),
    ),
    partition_by=("date",),
    time="cell_start_ms",
)

CLIENTS: Final = Table(
    "clients",
    "client, key",
    (
        _CLUSTER,
        *_CLIENT,
        _KEY,
        _AMOUNT,
        _REQUESTS,
        _THROTTLED,
        _THROTTLE_MS,
        _UNKNOWN,
        Column("limit", _DOUBLE, "limit", "Limit that was in force last; null without one"),
        _LIMIT_SOURCE,
        _LEVEL,
        _METER,
    ),
)

LIMITS: Final = Table(
    "limits",
    "client, key, period in which its limit stayed the same",
    (
        _CLUSTER,
        *_CLIENT,
        _KEY,
        Column("valid_from_ms", _LONG, "ms since 1970", "From when on; null: since before the recording"),
        Column("valid_to_ms", _LONG, "ms since 1970", "Up to when; null: until after the recording"),
        _LIMIT,
        _LIMIT_SOURCE,
        _LEVEL,
        _METER,
    ),
    time="valid_from_ms",
)

_OVER_ACTIVE: Final = "over the seconds in which the meter was active"

UTILISATION: Final = Table(
    "utilisation",
    "broker, meter, key",
    (
        *_METERED,
        _LIMIT,
        _LIMIT_SOURCE,
        Column("rate_mean", _DOUBLE, "limit", f"Mean of the rate that the broker limits, {_OVER_ACTIVE}"),
        Column("rate_p50", _DOUBLE, "limit", "Its median"),
        Column("rate_p95", _DOUBLE, "limit", "Its 95th percentile"),
        Column("rate_p99", _DOUBLE, "limit", "Its 99th percentile"),
        Column("rate_max", _DOUBLE, "limit", "Its maximum"),
        Column("peak_1s", _DOUBLE, "limit", "The largest amount of a single second"),
        Column("seconds_active", _LONG, "s", "Seconds with any usage"),
        Column("seconds_over_80", _LONG, "s", "Of them those with a rate above 80 % of the limit"),
        Column("seconds_over_100", _LONG, "s", "Of them those with a rate above the limit"),
        _REQUESTS,
        _THROTTLED,
        _THROTTLE_MS,
        _UNKNOWN,
    ),
)

THROTTLED: Final = Table(
    "throttled",
    "broker, meter, key, episode",
    (
        *_METERED,
        Column("cause", _TEXT, "", "Key that throttled, where only one can have; otherwise `ambiguous`"),
        Column("start_ms", _LONG, "ms since 1970", "First second with a throttled request"),
        Column("end_ms", _LONG, "ms since 1970", "End of the last; a round of windows (11 s) has none after it"),
        Column("requests", _LONG, "requests", "Requests that were throttled"),
        _THROTTLE_MS,
        _THROTTLE_MAX_MS,
        Column("clients", _TEXTS, "", "Who was throttled"),
    ),
    time="start_ms",
)

CALIBRATION: Final = Table(
    "calibration",
    "broker, meter, key",
    (
        *_METERED,
        _THROTTLED,
        Column("predicted_requests", _LONG, "requests", "Those that the replay throttles"),
        Column("false_negatives", _LONG, "requests", "Throttled by the broker, not by the replay"),
        Column("false_positives", _LONG, "requests", "Throttled by the replay, not by the broker"),
        Column("within_5ms_or_5pct", _DOUBLE, "share", "Of the throttled by either, those right within 5 ms or 5 %"),
        Column("error_p50_ms", _DOUBLE, "ms", "Median of how far the throttle times are apart"),
        Column("error_p99_ms", _DOUBLE, "ms", "Their 99th percentile"),
        Column("throttle_ms_logged", _LONG, "ms", "Sum of the broker's throttle times"),
        Column("throttle_ms_predicted", _LONG, "ms", "Sum of the replay's"),
        Column("predicted_low_ms", _LONG, "ms", "The same for request time, if nine tenths of it are logged"),
        Column("predicted_high_ms", _LONG, "ms", "The same, if half of it is"),
        Column("within_as_logged", _DOUBLE, "share", "As within_5ms_or_5pct, with the times as the log has them"),
        Column(
            "not_compared",
            _LONG,
            "requests",
            "Throttled, but maybe by another limit, or too early in the log",
        ),
    ),
)

REJECTED: Final = Table(
    "rejected",
    "input line that could not be used",
    (
        _CLUSTER,
        Column("file", _TEXT, "", "Path as it was given"),
        Column("line", _LONG, "", "Line of the file, from 1"),
        Column("reason", _TEXT, "", "What is wrong with it"),
        Column("sample", _TEXT, "", "Its first 200 bytes, printable"),
    ),
)

WHATIF: Final = Table(
    "whatif",
    "broker, meter, key, candidate",
    (
        _CLUSTER,
        _BROKER,
        Column("meter", _TEXT, "", "What the usage is counted on under the new limits"),
        _KEY,
        Column("limit_old", _DOUBLE, "limit", "Limit of the baseline; null: unlimited"),
        Column("limit_new", _DOUBLE, "limit", "Candidate limit; null: unlimited"),
        Column("model", _TEXT, "", "Arrivals: open (as recorded) or closed (wait for answers)"),
        Column("grain", _TEXT, "", "What was simulated: request or cell"),
        Column("amount_old", _DOUBLE, "amount", "What passed under the baseline"),
        Column("amount_new", _DOUBLE, "amount", "What passes up to the end of the recording"),
        Column("throttled_requests", _LONG, "requests", "Requests that would be throttled"),
        Column("throttled_ms", _DOUBLE, "ms", "Sum of their throttle times"),
        Column("throttled_share", _DOUBLE, "share", "Part of the recording in which the meter is muted"),
        Column("max_delay_ms", _DOUBLE, "ms", "The longest that a request waits"),
        Column("total_delay_ms", _DOUBLE, "ms", "What all requests wait, summed"),
        Column("backlog_max", _DOUBLE, "amount", "The most that waits at a time"),
        Column(
            "previous_meters", _TEXT, "", "Meters of the baseline that its clients were on, if others; otherwise null"
        ),
        Column("newly_throttled", _BOOL, "", "Throttled under the new limit and not under the old"),
        Column("no_longer_throttled", _BOOL, "", "Throttled under the old limit and not under the new"),
        Column("unknowns", _TEXTS, "", "What the row cannot know, by name"),
    ),
)

CURVE: Final = Table(
    "curve",
    "broker, meter, key, candidate",
    (
        *_METERED,
        Column("limit", _DOUBLE, "limit", "Candidate limit"),
        Column("throttled_share", _DOUBLE, "share", "Part of the recording in which the meter is muted"),
        Column("throttled_ms", _DOUBLE, "ms", "Sum of the throttle times"),
        Column("max_delay_ms", _DOUBLE, "ms", "The longest that a request waits"),
        Column("amount", _DOUBLE, "amount", "What passes up to the end of the recording"),
        _UNKNOWN,
    ),
)

RECOMMENDATIONS: Final = Table(
    "recommendations",
    "entity, key",
    (
        _CLUSTER,
        Column("entity", _TEXT, "", "Entity that the limit is set on"),
        _KEY,
        Column("value_now", _DOUBLE, "limit", "Limit set on it now; null without one"),
        Column("value_new", _DOUBLE, "limit", "Limit that is recommended; null where none was found"),
        Column("reason", _TEXT, "", "Why"),
        Column("predicted_throttled_share", _DOUBLE, "share", "Of its worst meter, the part of the time it is muted"),
        Column("predicted_max_delay_ms", _DOUBLE, "ms", "Of its worst meter, the longest that a request waits"),
        Column("predicted_throttled_requests", _LONG, "requests", "Requests of all its meters that would be throttled"),
        Column("owner", _TEXT, "", "Owner of the entity; null where no owners are known"),
    ),
)

SHOWBACK: Final = Table(
    "showback",
    "owner, date, key",
    (
        _CLUSTER,
        Column("owner", _TEXT, "", "Owner of the clients"),
        Column("date", _DATE, "day", "Day in the time zone that was asked for"),
        _KEY,
        _AMOUNT,
        Column("limit", _DOUBLE, "limit", "What the limits of the owner's meters add up to; a shared one in parts"),
        Column("share", _DOUBLE, "share", "Part of all known usage of the key on that day"),
        _UNKNOWN,
    ),
)

ALL_TABLES: Final = {
    table.name: table
    for table in (
        REQUESTS,
        USAGE,
        CLIENTS,
        UTILISATION,
        THROTTLED,
        CALIBRATION,
        REJECTED,
        LIMITS,
        SHOWBACK,
        WHATIF,
        CURVE,
        RECOMMENDATIONS,
    )
}
"""By name."""
