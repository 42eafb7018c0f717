"""The sections about candidate limits: what if, curves, and which to set."""

import re
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from pyspark.sql import Row

from kquota import figures
from kquota.pipeline.report import charts, curve_chart
from kquota.pipeline.report.contents import Bounds, Report
from kquota.pipeline.report.page import render_page
from tests.kit import example_report as example
from tests.kit.example_report import MIB

GENERATED = datetime(2026, 1, 3, 12, 0, tzinfo=UTC)


def html_of(section: str, report: Report) -> str:
    """The section alone."""
    page = render_page(report, generated=GENERATED)
    start = page.index(f'<section id="{section}"')
    return page[start : page.index("</section>", start)]


def text_of(section: str, report: Report) -> str:
    html = re.sub(r"<(title|desc)\b.*?</\1>|<wbr>", "", html_of(section, report))
    text = re.sub(r"<[^>]+>", " ", html).replace("&nbsp;", " ").replace("&lt;", "<")
    return re.sub(r"[\s\N{NO-BREAK SPACE}]+", " ", text)


def points_of(curve: Row) -> dict[str, charts.Points]:
    datasets: dict[str, charts.Points] = {}
    curve_chart.chart_of(curve, datasets)
    return datasets


def a_curve_of(*points: tuple[float, float], **changes: Any) -> Row:
    return example.a_curve(points=example.some_points(*points), **changes)


def test_a_section_stands_only_where_its_table_is() -> None:
    """Without the tables there is neither a section nor a link to it."""
    page = render_page(example.a_report(what_if=None, curves=None, recommendations=None), generated=GENERATED)
    for section in ("what-if", "curves", "recommendations"):
        assert f'id="{section}"' not in page
        assert f'href="#{section}"' not in page
        assert f'href="#{section}"' in render_page(example.a_report(), generated=GENERATED)


def test_tables_without_rows_say_why() -> None:
    """A step that found nobody is another thing than one that was not run."""
    report = example.an_empty_report()
    assert "neither the old limits nor the new ones hold for anyone" in text_of("what-if", report)
    assert "No limits were simulated" in text_of("curves", report)
    assert "No rule holds for anyone that was recorded" in text_of("recommendations", report)


def test_what_if_begins_with_the_counts_of_all_meters() -> None:
    """How many are throttled, anew and no longer, how many move, and how it was replayed."""
    tried = example.a_what_if(
        example.a_what_if_meter(),
        meters=1_400,
        changed=90,
        throttled=60,
        newly_throttled=7,
        no_longer_throttled=40,
        taken_over=1,
    )
    text = text_of("what-if", example.a_report(what_if=tried))
    assert "60 of 1,400 meters would be throttled , 7 newly; 40 no longer." in text
    assert "The change touches 90 meters, of which 1 takes over clients of other meters." in text
    assert "simulated request by request in the open model: requests arrive as they were recorded" in text
    assert "the 6 meters that either throttles differs by 0.1 % in the mean and 0.6 % at worst" in text
    assert "The 1 worst of 90 changed meters" in text
    assert "89 more are not on this page; the table whatif has them all." in text


def test_what_if_of_cells_in_the_closed_model() -> None:
    """Where there were no requests nothing is compared, and the model is said in words."""
    summary = example.a_summary()
    assert summary.whatif is not None
    run = msgspec.structs.replace(summary.whatif, model="closed", grain="cell", grain_difference=None)
    text = text_of("what-if", example.a_report(summary=msgspec.structs.replace(summary, whatif=run)))
    assert "simulated cell by cell of the usage in the closed model: clients wait for their answers" in text
    assert "at worst" not in text


def test_a_changed_meter_has_all_its_figures() -> None:
    """Limits, time muted as a bar and in words, waits, throughput, and what is not known, with its words below."""
    report = example.a_report()
    text = text_of("what-if", report)
    assert "Produce: all clients of the user newly throttled user=alice , broker 1 1 MiB/s → 512 KiB/s 86 %" in text
    assert "86 % 420 requests throttled 8.2 s 4 h 38 min \N{MINUS SIGN}38 % shaped-arrivals" in text
    assert "What the recording does not show of a meter: shaped-arrivals when requests would come" in text
    html = html_of("what-if", report)
    assert '<rect class="part" y="2" width="86"' in html
    assert "104857600 bytes as recorded, 65011712 bytes under the new limit" in html


def test_who_stops_and_whose_clients_a_meter_takes() -> None:
    """A badge says it in words; a limit that there is not is said, and so is what does not wait."""
    row = example.a_what_if_meter(
        newly_throttled=False, no_longer_throttled=True, throttled_share=0.0, throttled_requests=0, max_delay_ms=0.0,
        total_delay_ms=0.0, limit_new=None, amount_new=100.0 * MIB, previous_meters="user=alice,client-id=etl",
        unknowns=[],
    )  # fmt: skip
    text = text_of("what-if", example.a_report(what_if=example.a_what_if(row)))
    assert "no longer throttled user=alice , broker 1 takes over clients of user=alice,client-id=etl" in text
    assert "1 MiB/s → no limit never none none as recorded –" in text
    assert "What the recording cannot tell" not in text


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (8.0, 5.0, "\N{MINUS SIGN}38 %"),
        (100.0, 100.4, "+0.4 %"),
        (100.0, 100.04, "as recorded"),
        (0.0, 0.0, "as recorded"),
        (0.0, 1.0, "more"),
        (None, 1.0, "unknown"),
        (1.0, None, "unknown"),
    ],
)
def test_a_change_of_throughput_in_words(before: float | None, after: float | None, text: str) -> None:
    """A change has its sign; what is not known is not 0."""
    assert figures.change(before, after) == text.replace(" %", "\N{NO-BREAK SPACE}%")


def test_a_curve_is_drawn_and_described() -> None:
    """The chart has the curve in per cent and both limits; caption and description say the numbers."""
    report = example.a_report()
    assert points_of(example.a_curve())["curve"][0] == {"limit": 0.5, "share": 90.0}
    assert points_of(example.a_curve())["now"][0]["limit"] == 1.0
    assert points_of(example.a_curve())["advised"][0]["limit"] == pytest.approx(1.4)
    assert (
        "user=alice Produce, now 1 MiB/s : muted 50 % of the time, longest delay 4.5 s . Recommended: 1.4 MiB/s ."
        " Never muted from 1.6 MiB/s on."
    ) in text_of("curves", report)
    html = html_of("curves", report)
    [description] = re.findall(r'<desc id="curve1-description">(.*?)</desc>', html)
    assert description.replace("\N{NO-BREAK SPACE}", " ") == (
        "Muted with a limit of 512 KiB/s: 90 % of the time; 1.25 MiB/s: 10 % of the time; 2 MiB/s: 0 % of the time."
        " The present limit is 1 MiB/s: 50 %, the longest delay 4.5 s. Recommended is 1.4 MiB/s."
    )
    assert {"curve", "now", "advised", "nowname", "advisedname"} <= set(re.findall(r'class="(\w+)"', html))
    assert re.findall(r"<text[^>]*>(now|recommended)</text>", html) == ["now", "recommended"]


def test_a_meter_without_a_limit_has_neither_mark() -> None:
    """A curve of a client that no rule limits has no limit to show."""
    curve = example.a_curve(limit=None, throttled_share=None, max_delay_ms=None, recommended=None)
    assert points_of(curve).keys() == {"curve", "candidates"}
    text = text_of("curves", example.a_report(curves=example.some_curves(curve)))
    assert "Produce, no limit now. Never muted from" in text
    assert "limit recommended" not in text


def test_a_curve_on_several_brokers_is_of_the_worst() -> None:
    """It is said which broker is drawn; a meter that all limits mute has none from which on it is free."""
    curve = a_curve_of((1.0 * MIB, 0.9), (2.0 * MIB, 0.1), brokers=3)
    text = text_of("curves", example.a_report(curves=example.some_curves(curve, total=700)))
    assert "longest delay 4.5 s on broker 1, the worst of 3." in text
    assert "Muted with all candidate limits." in text
    assert "The 1 of 700 meters that their present limit mutes longest; the table curve has them all." in text


def test_free_from_is_the_lowest_limit_above_which_none_mutes() -> None:
    """A gap in a curve is no freedom: a higher limit may mute where a lower one did not."""
    assert curve_chart.free_from(a_curve_of((1.0, 0.0), (2.0, 0.2), (3.0, 0.0), (4.0, 0.0))) == 3.0
    assert curve_chart.free_from(a_curve_of((1.0, 0.0), (2.0, 0.0))) == 1.0
    assert curve_chart.free_from(a_curve_of((1.0, 0.0), (2.0, 0.1))) is None


@pytest.mark.parametrize(("now", "advised"), [(1.0, 1.04), (1.04, 1.0), (0.5, 2.0), (2.0, 0.5), (0.5, 0.501)])
def test_the_names_of_two_limits_stand_apart(now: float, advised: float) -> None:
    """However close the limits are, their names are on two levels, and none runs out of the chart."""
    curve = example.a_curve(limit=now * MIB, recommended=advised * MIB)
    datasets: dict[str, charts.Points] = {}
    spec = curve_chart.chart_of(curve, datasets).to_dict(validate=True)
    assert datasets["nowname"][0]["share"] != datasets["advisedname"][0]["share"]
    texts = {layer["mark"]["text"]: layer["mark"] for layer in spec["layer"] if layer["mark"]["type"] == "text"}
    assert texts.keys() == {"now", "recommended"}
    for name, mark in texts.items():
        at = now if name == "now" else advised
        assert mark["align"] == "left" or at > 0.6
        assert mark["align"] == "right" or at < 1.7


@pytest.mark.parametrize("limit", [1e-3, 0.25, 3e12])
@pytest.mark.parametrize("span", [1.0, 1.5, 1e6])
def test_any_limits_can_be_drawn(limit: float, span: float) -> None:
    """One limit or many, near or far: a few round ticks within the axis, and every point on it."""
    curve = a_curve_of((limit, 0.4), (limit * span, 0.0), limit=0.0, recommended=limit)
    datasets: dict[str, charts.Points] = {}
    spec = curve_chart.chart_of(curve, datasets).to_dict(validate=True)
    [layer] = [one for one in spec["layer"] if one["mark"]["type"] == "line"]
    low, high = layer["encoding"]["x"]["scale"]["domain"]
    assert all(low < one["limit"] < high for one in datasets["curve"])
    assert "now" not in datasets  # a limit of 0 has no place on a scale of logarithms
    ticks = layer["encoding"]["x"]["axis"]["values"]
    assert 2 <= len(ticks) <= 4
    assert all(low <= tick <= high for tick in ticks)
    assert 'class="chart"' in curve_chart.draw_curve(curve, number=1)


def test_a_timeline_leads_to_the_curve_of_its_meter() -> None:
    """The chart over time has a link to the other chart of the same meter, where that is drawn."""
    assert '<a href="#curve1">with other limits</a>' in html_of("timelines", example.a_report())
    other = example.a_curve(key="consumer_byte_rate")
    assert "#curve" not in html_of("timelines", example.a_report(curves=example.some_curves(other)))


def test_a_recommendation_says_from_what_to_what_and_why() -> None:
    """A row has the rule, both values, what is predicted, the reason, and the small curve with its text."""
    report = example.a_report()
    text = text_of("recommendations", report)
    assert "1 rule looked at : 1 to raise, 0 to lower." in text
    assert "Produce: user=alice producer_byte_rate 1 MiB/s → 1.4 MiB/s raise 0.8 % 430 ms" in text
    assert "430 ms the lowest with throttled_share<=0.01" in text
    html = html_of("recommendations", report).replace("\N{NO-BREAK SPACE}", " ")
    assert 'aria-label="Muted with a limit of 512 KiB/s: 90 % of the time; of 2 MiB/s: 0 %"' in html
    assert re.search(r'<path class="now" d="M[\d.]+ 0v30"/><path class="advised" d="M[\d.]+ 0v30"/>', html)


@pytest.mark.parametrize(
    ("now", "new", "change", "said"),
    [
        (2.0, 1.0, "lower", "lower"),
        (1.0, 1.0, "keep", "keep"),
        (None, 1.0, "add", "new"),
        (1.0, None, "unmet", "not found"),
        (None, None, "unmet", "not found"),
    ],
)
def test_each_kind_of_change_is_said_in_words(now: float | None, new: float | None, change: str, said: str) -> None:
    """A badge says what to do; colour says nothing more."""
    row = example.a_recommendation(value_now=now, value_new=new, change=change, curve=None)
    html = html_of("recommendations", example.a_report(recommendations=example.some_recommendations(row)))
    assert re.findall(r'<span class="badge [^"]*">([^<]*)</span>', html) == [said]
    assert ("Not found: <bdi>the lowest with" in html) == (new is None)
    assert '<svg class="spark"' not in html


def test_a_rule_of_somebody_says_whose() -> None:
    rows = [example.a_recommendation(owner=owner) for owner in ("search & co", None)]
    text = text_of("recommendations", example.a_report(recommendations=example.some_recommendations(*rows)))
    assert "user=alice producer_byte_rate , owner search &amp; co 1 MiB/s" in text
    assert text.count("owner") == 1


def test_a_small_curve_names_its_meter_where_that_is_not_the_rule() -> None:
    """A rule for many clients has many meters; the one that is drawn is named."""
    row = example.a_recommendation(entity="user=<default>")
    text = text_of("recommendations", example.a_report(recommendations=example.some_recommendations(row)))
    assert re.search(r"throttled_share<=0.01 user=alice", text)


def test_a_small_curve_lies_within_its_strip() -> None:
    """Points and marks are within 100 x 30; one point alone can still be seen."""
    spark = curve_chart.spark_of(example.a_curve())
    numbers = [tuple(map(float, point.split())) for point in spark.path[1:].split("L")]
    assert len(numbers) == 6
    assert all(0 <= x <= 100 and 1 <= y <= 29 for x, y in numbers)
    assert numbers == sorted(numbers)
    assert spark.now is not None
    assert spark.advised is not None
    assert float(spark.now) < float(spark.advised)
    assert curve_chart.spark_of(a_curve_of((5.0, 0.0), limit=None, recommended=None)) == curve_chart.Spark(
        "M50.0 29.0h1", None, None
    )


def test_lists_are_folded_and_counted() -> None:
    """Rows beyond the first are folded away; those that are not listed are counted."""
    changed = example.a_what_if(*(example.a_what_if_meter() for _ in range(20)))
    advised = example.some_recommendations(*(example.a_recommendation() for _ in range(20)), total=99)
    report = example.a_report(what_if=changed, recommendations=advised)
    for section in ("what-if", "recommendations"):
        assert "Show the next 5" in text_of(section, report)
    assert "79 more are not on this page; the table recommendations has them all." in text_of("recommendations", report)
    assert "more are not on this page" not in text_of("what-if", report)


def test_no_name_goes_through_the_drawings() -> None:
    """Charts hold no name and no colour; every name in these sections is cut and made visible."""
    report = example.a_hostile_report()
    drawn = re.findall(r'<svg [^>]*class="chart".*?</svg>', html_of("curves", report), re.DOTALL)
    assert len(drawn) == len(example.HOSTILE)
    for svg in drawn:
        assert "alert" not in re.sub(r"<(title|desc)\b.*?</\1>", "", svg)
        assert not re.search(r'(fill|stroke)="(?!none|transparent)', svg)
    for section in ("what-if", "curves", "recommendations"):
        assert "x" * 700 not in html_of(section, report)
        assert "\u202e" not in html_of(section, report)


def test_drawings_stay_small() -> None:
    """A chart of as many points as are drawn is a few kilobytes, so that 24 of them do not burden the page."""
    points = [(100.0 * 1.05**number, max(0.0, 0.9 - number / 70)) for number in range(Bounds().curve_points)]
    assert len(curve_chart.draw_curve(a_curve_of(*points), number=1)) < 12_000
