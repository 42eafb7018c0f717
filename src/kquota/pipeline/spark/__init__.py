"""Spark: its session and Java, how workers read and shuffle rows, its errors. The only rim of the pipeline.

Rows of usage take three paths that are not plain Spark; docs/adr/0020 says what each of them earns:

- :mod:`~kquota.pipeline.spark.parquet_source`: workers read Parquet files themselves, as Arrow batches;
- :mod:`~kquota.pipeline.spark.shuffle`: rows that have to meet are shuffled in blocks, not one by one.
  :func:`~kquota.pipeline.spark.group_by_meter.group_by_meter` is the door to it for the cells of meters;
- :mod:`~kquota.pipeline.spark.partial_sums`: workers sum what they read before a ``groupBy``.

What their functions need beside rows, such as the meters of clients, is part of the plan, too:
:mod:`~kquota.pipeline.spark.lazy_values` (docs/adr/0022).

All else is DataFrames, ``groupBy``, joins, and ``mapInArrow``.
"""
