"""Log lines that a shipper wrapped in JSON."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.errors import InputError
from kquota.pipeline.ingest.request_log.envelope import check_envelope, unwrapped, why_rejected

LINE = '[2026-01-02 03:04:05,678] DEBUG Completed request:{"a":"é \\"b\\""} (kafka.request.logger)'


def wrapped(**fields: Any) -> bytes:
    return json.dumps({"@timestamp": "2026-01-05T10:00:00.123Z", **fields}).encode() + b"\n"


@pytest.mark.parametrize(
    ("field", "envelope"),
    [
        ("message", wrapped(message=LINE, host={"name": "broker-1"}, log={"offset": 17})),  # Filebeat
        ("message", wrapped(message=LINE, file="/var/log/kafka/request.log", source_type="file")),  # Vector
        ("log", wrapped(log=LINE + "\n", stream="stdout", time="2026-01-05T10:00:00.1Z")),  # Fluent Bit, Docker
        ("event.original", wrapped(event={"original": LINE, "dataset": "kafka"})),  # Logstash
    ],
)
def test_a_line_comes_out_as_it_was_logged(field: str, envelope: bytes) -> None:
    assert unwrapped(envelope * 2, field) == f"{LINE}\n{LINE}\n".encode()


@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n")), max_size=5))
def test_lines_come_out_in_order(texts: list[str]) -> None:
    assert (
        unwrapped(b"".join(wrapped(message=text) for text in texts), "message")
        == "".join(f"{text}\n" for text in texts).encode()
    )


def test_a_line_stays_one_line_and_what_is_not_wrapped_stays_as_it_is() -> None:
    """So that lines keep their numbers."""
    others = b'{"message":5}\n{"log":"x"}\nplain\n\n{"message"\n\xff\n'
    assert unwrapped(wrapped(message="a\nb") + others, "message") == b"a b\n" + others
    assert unwrapped(others, "") == others


def test_why_a_wrapped_line_is_rejected() -> None:
    assert why_rejected(b'{"log":"x"}', "message") == "a JSON object without a text in its field message"
    assert "`envelope` names the field" in (why_rejected(b'{"log":"x"}', "") or "")
    assert why_rejected(b"[2026-01-02", "message") is None


@pytest.mark.parametrize("field", [".", "a.", ".a", "a..b", "a.b.c.d.e.f.g.h.i"])
def test_names_that_are_none(field: str) -> None:
    with pytest.raises(InputError, match="envelope"):
        check_envelope(field)
