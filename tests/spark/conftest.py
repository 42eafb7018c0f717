"""One Spark session for all tests of a run, made for small data."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kquota.pipeline.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """A local session. Its Java is found as the product finds it."""
    session = start_session(master="local[2]", app_name="kquota-tests")
    yield session
    session.stop()
