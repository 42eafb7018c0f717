"""Spark: its session and Java, how workers read and shuffle rows, its errors. The only rim of the pipeline."""
