"""What becomes of failures inside Spark: one line that says what to do."""

import pytest
from pyspark.errors import PySparkException

from kquota.errors import InputError, KquotaError
from kquota.pipeline.jobs import _explained, check_time_zone


def test_a_full_disk_is_called_that() -> None:
    error = _explained(PySparkException("Job aborted.\nOSError: [Errno 28] No space left on device\n\tat a.b.C"))
    assert isinstance(error, KquotaError)
    assert str(error).startswith("no space left on the device: free some")


def test_the_last_error_of_a_stack_is_told_without_the_stack() -> None:
    error = _explained(PySparkException("Job aborted\n\tat a.b.C(D.java:1)\nValueError: bad thing"))
    assert str(error) == "Spark failed: ValueError: bad thing"


def test_other_errors_stay_what_they_are() -> None:
    cause = RuntimeError("a bug")
    assert _explained(cause) is cause


@pytest.mark.parametrize("name", ["Mars/Base", "", "../etc/passwd", "UTC\0"])
def test_unknown_time_zones(name: str) -> None:
    with pytest.raises(InputError, match="no such time zone"):
        check_time_zone(name)
