"""What JmxTool prints, in each of its formats, gives the same values."""

import pytest

from kquota.pipeline.ingest.metrics.jmx_tables import JmxTable, JmxValue
from kquota.pipeline.ingest.request_log.line import RejectedLineError

T = 1_767_323_045_000
BEAN = r'kafka.server:type=Produce,user=CN%3Da,client-id="a\*b, \"c\""'
KEYS = [f"{BEAN}:byte-rate", "kafka.server:type=Request,user=x:request-time"]
VALUES = ["1.5E7", "NaN"]
EXPECTED = [JmxValue(T + tick, key, value) for tick in (0, 1000) for key, value in zip(KEYS, VALUES, strict=True)]


def lines(form: str) -> list[str]:
    ticks = [T, T + 1000]
    match form:
        case "original":
            return [",".join(f'"{key}"' for key in ("time", *KEYS)), *(",".join([str(at), *VALUES]) for at in ticks)]
        case "rows":
            rows = []
            for at in ticks:
                for key, value in zip(KEYS, VALUES, strict=True):
                    bean, _, attribute = key.rpartition(":")
                    rows.append(f'{at},"{bean.replace(chr(34), chr(34) * 2)}",{attribute},{value}')
            return ["epoch_ms,mbean,attribute,value", *rows]
        case _:
            pair = {"csv": '{},"{}"', "tsv": "{}\t{}", "properties": "{}={}"}[form]
            return [
                pair.format(key, value)
                for at in ticks
                for key, value in [("time", str(at)), *zip(KEYS, VALUES, strict=True)]
            ]


def read(text: list[str]) -> tuple[list[JmxValue], list[tuple[int, str]]]:
    table = JmxTable()
    found: list[JmxValue] = []
    rejected: list[tuple[int, str]] = []
    for number, line in enumerate(text, 1):
        try:
            found += table.read(line)
        except RejectedLineError as error:
            rejected.append((number, str(error)))
    return found, rejected


@pytest.mark.parametrize("form", ["original", "rows", "csv", "tsv", "properties"])
def test_every_form_says_the_same(form: str) -> None:
    assert read(lines(form)) == (EXPECTED, [])


@pytest.mark.parametrize("form", ["original", "rows"])
def test_a_second_run_in_the_same_file_has_its_own_header(form: str) -> None:
    again = [line.replace(str(T), str(T + 5000)).replace(str(T + 1000), str(T + 6000)) for line in lines(form)]
    found, rejected = read(lines(form) + again)
    assert [value.at_ms - T for value in found[::2]] == [0, 1000, 5000, 6000]
    assert not rejected


@pytest.mark.parametrize(("form", "refused"), [("original", 1), ("rows", 2), ("csv", 1), ("tsv", 1), ("properties", 1)])
def test_a_clock_that_was_set_back_costs_the_ticks_behind(form: str, refused: int) -> None:
    """Until time has passed the latest once more, nothing is taken: it would be counted twice."""
    text = [line.replace(str(T + 1000), str(T - 9000)) for line in lines(form)]
    after = [line.replace(str(T + 1000), str(T + 2000)).replace(str(T), str(T)) for line in lines(form)]
    later = after[len(after) // 2 + (form in ("original", "rows")) :] if form != "original" else after[-1:]
    found, rejected = read(text + later)
    assert {value.at_ms - T for value in found} == {0, 2000}
    assert len(rejected) == refused
    assert "goes back" in rejected[0][1]


def test_lines_that_cannot_be_used_cost_themselves() -> None:
    text = lines("original")
    text[1:1] = ["Trying to connect", f"{T},1", "yesterday,1,2"]
    found, rejected = read(text)
    assert found == EXPECTED
    assert [number for number, _ in rejected] == [2, 3, 4]
    assert "2 values under a header of 3" in rejected[1][1]
    assert "--date-format" in rejected[2][1]


def test_a_file_without_a_header_is_nothing() -> None:
    found, rejected = read(lines("original")[1:])
    assert not found
    assert all("JmxTool" in reason for _, reason in rejected)
    assert len(rejected) == 2
