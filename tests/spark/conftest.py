"""One Spark session for all tests of a run, made for small data."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kquota.pipeline.spark.session import start_session
from tests.kit.s3 import KEY, SECRET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """A local session. Its Java is found as the product finds it."""
    with pytest.MonkeyPatch.context() as patch:
        # Workers have the environment that the session began with, and look there for the keys of an object store.
        patch.setenv("AWS_ACCESS_KEY_ID", KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        session = start_session(master="local[2]", app_name="kquota-tests")
    yield session
    session.stop()
