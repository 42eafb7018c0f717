"""Answers of Prometheus' HTTP API: ``query_range`` (matrix) and ``query`` (vector), series by series."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from kquota.pipeline.ingest.metrics.prometheus_text import epoch_ms
from kquota.pipeline.ingest.request_log.line import RejectedLineError

__all__ = ["JsonSeries", "parse_answer", "read_values"]


class JsonSeries(NamedTuple):
    """Labels, and the values undecoded: most series are of no interest."""

    labels: dict[str, str]
    values: Raw


class _Series(Struct):
    metric: dict[str, str]
    values: Raw | UnsetType = UNSET
    value: Raw | UnsetType = UNSET
    histograms: Raw | UnsetType = UNSET


class _Answer(Struct):
    status: str
    data: Raw | UnsetType = UNSET
    error: str = ""


class _Matrix(Struct):
    resultType: str
    result: list[_Series]


_ANSWER: Final = msgspec.json.Decoder(_Answer)
_MATRIX: Final = msgspec.json.Decoder(_Matrix)
_LIST: Final = msgspec.json.Decoder(list[_Series])
_VALUES: Final = msgspec.json.Decoder(list[tuple[float, str]])


def parse_answer(document: bytes) -> Iterator[JsonSeries]:
    """The series of an answer, or of the bare list of them that ``promtool query range`` writes.

    :raises RejectedLineError: it is no such answer.
    """
    try:
        found = _LIST.decode(document) if document.lstrip()[:1] == b"[" else _series_of(document)
    except msgspec.ValidationError as error:
        raise RejectedLineError(f"not an answer of Prometheus to a query: {error}") from None
    except msgspec.DecodeError as error:
        raise RejectedLineError(f"broken JSON: {error}") from None
    for one in found:
        if one.values is not UNSET:
            yield JsonSeries(one.metric, one.values)
        elif one.value is not UNSET:
            yield JsonSeries(one.metric, Raw(b"[" + bytes(one.value) + b"]"))


def _series_of(document: bytes) -> list[_Series]:
    answer = _ANSWER.decode(document)
    if answer.status != "success" or answer.data is UNSET:
        raise RejectedLineError(f"Prometheus answered with an error: {answer.error or answer.status}")
    try:
        return _MATRIX.decode(answer.data).result
    except msgspec.ValidationError:
        kind = msgspec.json.decode(answer.data, type=_Kind).resultType
        if kind in ("matrix", "vector"):
            raise
        raise RejectedLineError(f"an answer with a {kind}: ask for series, with query_range") from None


class _Kind(Struct):
    resultType: str = "something else"


def read_values(values: Raw) -> tuple[list[int], list[float]]:
    """Times in epoch milliseconds, and values.

    :raises RejectedLineError: they are not pairs of a time and a number.
    """
    try:
        pairs = _VALUES.decode(values)
        return [epoch_ms(at) for at, _ in pairs], [float(text) for _, text in pairs]
    except (msgspec.DecodeError, ValueError) as error:
        raise RejectedLineError(f"values that are not pairs of a time and a number: {error}") from None
