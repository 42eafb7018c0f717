"""Rows of `usage` and `requests` that say only what a test is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kquota.pipeline.dataset.tables import REQUESTS, USAGE, Table
from kquota.quotas import CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["START_MS", "request_rows", "usage_rows"]

START_MS = 1_800_000_000_000
_APIS = {PRODUCER_BYTE_RATE: 0, CONSUMER_BYTE_RATE: 1, CONTROLLER_MUTATION_RATE: 19, REQUEST_PERCENTAGE: 3}


def usage_rows(spark: SparkSession, *cells: dict[str, Any]) -> DataFrame:
    """`usage`: a cell says its second, and what differs from one request of a producer alice."""
    return _frame(
        spark,
        USAGE,
        (
            {
                "cluster": "",
                "broker_id": 0,
                "cell_start_ms": START_MS + cell["second"] * 1000,
                "cell_ms": 1000,
                "source": "request-log",
                "grain": "client",
                "user": "alice",
                "client_id": "etl",
                "ip": None,
                "key": PRODUCER_BYTE_RATE,
                "amount": 0.0,
                "amount_max": 0.0,
                "requests": 1,
                "connections": 1,
                "throttled_requests": 0,
                "throttle_ms": 0,
                "throttle_max_ms": 0,
                "unknown_amounts": 0,
                "date": None,
            }
            | cell
            for cell in cells
        ),
    )


def request_rows(spark: SparkSession, *requests: dict[str, Any]) -> DataFrame:
    """`requests`: one says its second, and what differs from one of a producer alice."""
    return _frame(
        spark,
        REQUESTS,
        (
            {
                "cluster": "",
                "broker_id": 0,
                "connection": "c",
                "seq": seq,
                "end_ms": START_MS + one["second"] * 1000.0,
                "record_ms": START_MS + one["second"] * 1000.0,
                "api_key": _APIS[one.get("key", PRODUCER_BYTE_RATE)],
                "api_version": 7,
                "user": "alice",
                "client_id": "etl",
                "ip": None,
                "key": PRODUCER_BYTE_RATE,
                "amount": one.get("amount"),
                "local_ms": 0.1,
                "remote_ms": 0.0,
                "throttle_ms": 0,
                "listener": "CLIENT",
            }
            | one
            for seq, one in enumerate(requests)
        ),
    )


def _frame(spark: SparkSession, table: Table, rows: Any) -> DataFrame:
    return spark.createDataFrame([tuple(row[name] for name in table.columns) for row in rows], table.schema)
