"""What goes wrong inside Spark, told in a line that says what to do, and not in a stack of frames."""

from __future__ import annotations

import re
from typing import Any, Final

from kquota.errors import InputError, KquotaError

__all__ = ["to_kquota_error"]

_DAMAGED: Final = re.compile(r"while reading file (?:file:/*(?=/))?(.+?\.parquet)")
_NOT_FOUND: Final = re.compile(r"FileNotFoundError: .*?'(.+?)'|FileNotFoundException: File file:(/.+?) does not exist")
_OURS: Final = re.compile(r"kquota\.[\w.]+Error: (.+)")
"""How the traceback of a worker ends that raised an error of kquota."""
_TRACEBACK: Final = "Traceback (most recent call last):"


def to_kquota_error(error: Exception) -> Exception:
    """An error of Spark as one of ours, in a line; any other as it is."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    if not isinstance(error, Py4JError | PySparkException):
        return error
    text = _causes(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    if "No space left on device" in text:
        return KquotaError("no space left on the device: free some, or write elsewhere; earlier results are whole")
    if "No module named 'kquota'" in text:
        return KquotaError(
            "Spark's workers cannot import kquota: install it with its extras in the Python that they run, or send it "
            "along (docs/cluster.md)"
        )
    if (damaged := _DAMAGED.search(text)) is not None:
        return InputError(f"{damaged[1]} cannot be read, it is damaged: run the step that wrote it again")
    if (missing := _NOT_FOUND.search(text)) is not None:
        return KquotaError(
            f"a worker of Spark cannot find {missing[1] or missing[2]}: what is read and written has to be on a file "
            "system that this machine and all workers have mounted under the same path"
        )
    last = _last_error(text)
    if (ours := _OURS.fullmatch(last)) is not None:
        return KquotaError(ours[1])
    return KquotaError(f"Spark failed: {last}")


def _causes(exception: Any) -> str:
    """What Java says of an exception and of what caused it, a line for each."""
    lines = []
    while exception is not None:
        lines.append(str(exception.toString()))
        exception = exception.getCause()
    return "\n".join(lines)


def _last_error(text: str) -> str:
    """The line of an error that says most: how a worker's traceback ends, otherwise the last that names one."""
    for trace in reversed(text.split(_TRACEBACK)[1:]):
        found = next((line for line in trace.splitlines()[1:] if line.strip() and not line[0].isspace()), None)
        if found is not None:
            return found
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return next(
        (line for line in reversed(lines) if ("Error" in line or "Exception" in line)), lines[-1] if lines else ""
    )
