"""What becomes of failures inside Spark: one line that says what to do."""

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from kquota.errors import InputError, KquotaError
from kquota.pipeline.spark.errors import to_kquota_error


def test_a_full_disk_is_called_that() -> None:
    error = to_kquota_error(PySparkException("Job aborted.\nOSError: [Errno 28] No space left on device\n\tat a.b.C"))
    assert isinstance(error, KquotaError)
    assert str(error).startswith("no space left on the device: free some")


def test_the_last_error_of_a_stack_is_told_without_the_stack() -> None:
    error = to_kquota_error(PySparkException("Job aborted\n\tat a.b.C(D.java:1)\nValueError: bad thing"))
    assert str(error) == "Spark failed: ValueError: bad thing"


WORKER = """Job aborted due to stage failure: Task 5 in stage 244.0 failed 1 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer.

\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:581)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):"""


def test_of_a_worker_the_end_of_its_traceback_is_told() -> None:
    """Also where what follows has another beginning of one."""
    error = to_kquota_error(PySparkException(WORKER))
    assert str(error) == "Spark failed: pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer."


def test_a_damaged_file_is_named() -> None:
    text = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a b/usage/x.parquet.  SQLSTATE: K"
    error = to_kquota_error(PySparkException(f"Job aborted\n{text}\n\tat a.b.C(D.java:1)"))
    assert isinstance(error, InputError)
    assert str(error) == "/a b/usage/x.parquet cannot be read, it is damaged: run the step that wrote it again"


@pytest.mark.parametrize(
    "line",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: '/a b/x.parquet'",
        "FileNotFoundError: [Errno 2] Failed to open local file '/a b/x.parquet'. Detail: [errno 2] No such file",
        "Caused by: java.io.FileNotFoundException: File file:/a b/x.parquet does not exist",
    ],
)
def test_a_file_that_is_not_where_a_worker_runs(line: str) -> None:
    """A log, or what another worker wrote: on a disk of one machine."""
    error = to_kquota_error(PySparkException(f"Job aborted\n{line}\n\tat a.b.C(D.java:1)"))
    assert str(error).startswith(
        "a worker of Spark cannot find /a b/x.parquet: what is read and written has to be on a"
    )


class JavaError:
    """As py4j shows one."""

    def __init__(self, text: str, cause: "JavaError | None" = None) -> None:
        self.toString = lambda: text
        self.getCause = lambda: cause


def test_what_java_throws_is_told_by_its_cause() -> None:
    """What is outermost may say nothing."""
    cause = JavaError("java.lang.RuntimeException: x is not a Parquet file")
    error = Py4JJavaError.__new__(Py4JJavaError)
    error.java_exception = JavaError("org.apache.spark.SparkException: Exception thrown in awaitResult: ", cause)
    assert str(to_kquota_error(error)) == "Spark failed: java.lang.RuntimeException: x is not a Parquet file"


def test_other_errors_stay_what_they_are() -> None:
    cause = RuntimeError("a bug")
    assert to_kquota_error(cause) is cause
