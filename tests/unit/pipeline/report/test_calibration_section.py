import re
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from pyspark.sql import Row

from kquota import figures
from kquota.pipeline.report import calibration_chart, charts
from kquota.pipeline.report.page import render_page
from tests.kit import example_report as example
from tests.kit.example_report import a_calibrated_meter as a_meter

GENERATED = datetime(2026, 1, 3, 12, 0, tzinfo=UTC)


def html_of(calibration: Sequence[Row] | None, *, kept_requests: bool = True) -> str:
    """The section alone."""
    summary = example.a_summary(kept_requests=kept_requests)
    report = example.a_report(calibration=calibration, summary=summary)
    page = render_page(report, generated=GENERATED)
    start = page.index('<section id="calibration"')
    return page[start : page.index("</section>", start)]


def text_of(calibration: Sequence[Row] | None, *, kept_requests: bool = True) -> str:
    html = re.sub(r"<(title|desc)\b.*?</\1>", "", html_of(calibration, kept_requests=kept_requests))
    return re.sub(r"[\s\N{NO-BREAK SPACE}]+", " ", re.sub(r"<[^>]+>", " ", html).replace("&nbsp;", " "))


def points_of(*rows: Row) -> dict[str, charts.Points]:
    datasets: dict[str, charts.Points] = {}
    calibration_chart.chart_of(rows, datasets)
    return datasets


def test_the_share_of_all_waits_and_both_sums_are_said() -> None:
    """The first sentence has the share, the counts and the sums of all meters, listed or not."""
    listed = example.a_calibration(
        a_meter(),
        all_total=50,
        all_compared=2_000,
        all_close=1_999,
        all_throttle_ms_logged=90_000,
        all_throttle_ms_predicted=91_000,
    )
    text = text_of(listed)
    assert "99.9 % of the throttle times are reproduced" in text
    assert "gives 1,999 of 2,000 within 5 ms or 5 %" in text
    assert "1 min 31 s in total where it logged 1 min 30 s" in text
    assert "The 1 worst of 50 meters" in text
    assert "49 more are not on this page; the table calibration has them all" in text


def test_a_row_has_all_figures_of_its_meter() -> None:
    """A row says the meter, its waits, shares, errors and sums, exact ones behind the short ones."""
    html = html_of(example.a_calibration(a_meter()))
    row = re.sub(r"[\s\N{NO-BREAK SPACE}]+", " ", re.sub(r"<[^>]+>", " ", html[html.index("<tbody") :]))
    assert (
        "1. Produce: all clients of the user user=alice , broker 1 40 97.5 % as logged 95 % 1 false positives 2" in row
    )
    assert "0 ms p99 13 ms 1 min 05 s predicted 1 min 04 s 3" in row
    assert {"0.5 ms", "12.75 ms", "65000 ms", "64000 ms"} <= set(re.findall(r'title="([^"]+)"', html))


def test_a_low_share_is_marked_without_colour_too() -> None:
    """A share under 90 % has a badge in the table and a filled mark, with the number of its row, in the plot."""
    good, low = a_meter(within_5ms_or_5pct=0.95), a_meter(within_5ms_or_5pct=0.5)
    html = html_of(example.a_calibration(low, good))
    assert html.count('class="badge close"') == 1
    assert html.count('class="low0"') == 2  # in the plot and in the legend
    points = points_of(good, low)
    assert (len(points["logged0"]), len(points["low0"])) == (1, 1)
    assert [one["number"] for one in points["number"]] == [2]


def test_request_time_is_a_range_and_never_agreement() -> None:
    """Meters of request time stand apart: what was logged, from where to where the replay lies, and why."""
    html = html_of(example.a_calibration(estimates=[example.an_estimated_meter()]))
    text = text_of(example.a_calibration(estimates=[example.an_estimated_meter()]))
    assert "Request time estimate No agreement can be stated here: the log has only 50 to 90 % of the time" in text
    assert "user=alice , broker 1 7 4 s 0 ms to 1 min 30 s" in text
    assert "reproduced" not in text.lower()
    assert "<svg" not in html


def test_without_the_table_the_section_says_how_to_get_it() -> None:
    """A directory from before there was a calibration gives no error, but what to run."""
    text = text_of(None)
    assert "Not known: this directory has no table calibration" in text
    assert "kquota analyze --keep-requests" in text


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (True, "the broker throttled no client, and with the limits given it should have throttled none"),
        (False, "the requests were not kept. kquota analyze --keep-requests keeps them"),
    ],
)
def test_a_table_without_rows_says_why(kept: bool, said: str) -> None:
    """No rows because nothing was throttled is another thing than because there was nothing to replay."""
    assert said in text_of(example.a_calibration(), kept_requests=kept).replace(" .", ".")


def test_waits_that_could_not_be_compared() -> None:
    """A meter whose waits another limit may have caused has no share, no error and no mark."""
    row = a_meter(
        compared=0, within_5ms_or_5pct=None, within_as_logged=None, error_p50_ms=None, error_p99_ms=None,
        false_negatives=0, false_positives=0, throttle_ms_logged=0, throttle_ms_predicted=0, not_compared=9,
    )  # fmt: skip
    text = text_of(example.a_calibration(row))
    assert "No throttle time could be compared: 9 may come from another limit" in text
    assert "nothing to compare" in text
    assert "<svg" not in html_of(example.a_calibration(row))


def test_the_list_is_folded_after_the_first() -> None:
    """Rows beyond the first are folded away and numbered on."""
    text = text_of(example.a_calibration(*(a_meter() for _ in range(20))))
    assert "The 15 worst of 20 meters" in text
    assert "Show the next 5" in text
    assert "16. Produce" in text


def test_keys_differ_by_shape() -> None:
    """Each key has its own mark; keys that are not known share one."""
    keys = ("producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate", "new_rate", "<b>")
    points = points_of(*(a_meter(key=key) for key in keys))
    assert [len(points[f"logged{mark}"]) for mark in range(4)] == [1, 1, 1, 2]
    datasets: dict[str, charts.Points] = {}
    spec = calibration_chart.chart_of([a_meter(key=key) for key in keys], datasets).to_dict(validate=True)
    shapes = [layer["mark"]["shape"] for layer in spec["layer"] if layer["mark"]["type"] == "point"]
    assert len(set(shapes)) == len(shapes) == 4


def test_marks_lie_within_the_band_where_sums_differ_by_5_percent_at_most() -> None:
    """The band goes from 95 % to 105 % of what was logged and never leaves the plot; who is outside has a number."""
    points = points_of(
        a_meter(throttle_ms_logged=1_000, throttle_ms_predicted=1_050),
        a_meter(throttle_ms_logged=100_000, throttle_ms_predicted=106_000),
    )
    low, high = points["equal"][0]["logged"], points["equal"][1]["logged"]
    for corner in points["band"]:
        assert corner["predicted"] == pytest.approx(max(corner["logged"] * 0.95, low))
        assert corner["to"] == pytest.approx(min(corner["logged"] * 1.05, high))
    assert [one["number"] for one in points["number"]] == [2]


@pytest.mark.parametrize(("logged_ms", "predicted_ms"), [(0, 5_000), (5_000, 0), (1, 1), (10**12, 10**12)])
def test_any_sums_can_be_drawn(logged_ms: int, predicted_ms: int) -> None:
    """Nothing stands on the edge, where the plot says so; a scale has ticks whatever the length of time."""
    row = a_meter(throttle_ms_logged=logged_ms, throttle_ms_predicted=predicted_ms)
    datasets: dict[str, charts.Points] = {}
    spec = calibration_chart.chart_of([row], datasets).to_dict(validate=True)
    low, high = spec["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert high / low >= 9.99
    [mark] = datasets["logged0"]
    assert low <= mark["logged"] <= high
    assert low <= mark["predicted"] <= high
    assert (low in mark.values()) == (0 in (logged_ms, predicted_ms))
    assert ("A mark on an edge" in html_of(example.a_calibration(row))) == (0 in (logged_ms, predicted_ms))
    ticks = spec["layer"][0]["encoding"]["x"]["axis"]["values"]
    assert 1 <= len(ticks) <= 5
    drawn = html_of(example.a_calibration(row))
    assert len(re.findall(r"<text[^>]*>[\d,]+ (?:ms|s|min|h|d)</text>", drawn)) >= 2


def test_no_name_goes_through_the_drawing() -> None:
    """The plot has numbers where it names a meter; what it draws has a class for the style sheet and no colour."""
    html = html_of(example.a_hostile_report().calibration)
    [svg] = re.findall(r'<svg [^>]*class="chart".*?</svg>', html, re.DOTALL)
    assert "alert" not in svg
    assert not re.search(r'(fill|stroke)="(?!none|transparent)', svg)
    assert {"band", "equal", "number", "low3"} <= set(re.findall(r'class="(\w+)"', svg))
    assert len(re.findall(r"<text[^>]*>\d+</text>", svg)) == 10


@pytest.mark.parametrize(
    ("part", "text"),
    [(None, "unknown"), (0.0, "0 %"), (1.0, "100 %"), (0.99999, "99.9 %"), (0.00001, "0.1 %"), (0.5454, "54.5 %")],
)
def test_a_share_is_all_or_nothing_only_where_it_is(part: float | None, text: str) -> None:
    """A single wait that is not reproduced is never rounded away."""
    assert figures.share(part) == text.replace(" ", "\N{NO-BREAK SPACE}")
