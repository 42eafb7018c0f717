"""Formats for ``spark.read``: request logs, and the quotas of a file, a store or a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Let ``spark.read`` know the formats ``kafka-request-log`` and ``kquota``.

    >>> spark.read.format("kafka-request-log").option("broker_id", 1).load("s3://logs/broker-1.log")  # doctest: +SKIP
    >>> spark.read.format("kquota").option("table", "history").load("sqlite:///quotas.db")  # doctest: +SKIP
    """
    from kquota.pipeline.data_sources.quotas import QuotasDataSource
    from kquota.pipeline.data_sources.request_log import RequestLogDataSource

    spark.dataSource.register(RequestLogDataSource)
    spark.dataSource.register(QuotasDataSource)
