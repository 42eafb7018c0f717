import dataclasses
import itertools
import re
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from pyspark.sql import Row

from kquota.pipeline.meters.episodes import AMBIGUOUS, UNEXPLAINED
from kquota.pipeline.report import charts
from kquota.pipeline.report.contents import Report
from kquota.pipeline.report.page import render_page
from tests.kit import example_report as example

GENERATED = datetime(2026, 1, 3, 12, 0, tzinfo=UTC)
VOID = {"meta", "br", "wbr", "link", "img", "input", "hr", "col"}
INLINE = {"a", "b", "bdi", "code", "em", "i", "span", "strong"}


class Page(HTMLParser):
    """The page as a browser's parser sees it: elements with their attributes, and the text between them."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._apart(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag
        self._apart(tag)

    def _apart(self, tag: str) -> None:
        if tag not in INLINE:
            self.texts.append((tuple(self.open), " "))

    def handle_data(self, data: str) -> None:
        self.texts.append((tuple(self.open), data))

    @property
    def text(self) -> str:
        """What a reader sees, spaces as one space."""
        shown = (data for path, data in self.texts if not {"style", "title", "desc"} & set(path))
        return re.sub(r"\s+", " ", "".join(shown))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def page_of(report: Report) -> Page:
    return Page(render_page(report, generated=GENERATED))


REPORTS = {
    "usual": example.a_report,
    "empty": example.an_empty_report,
    "hostile": example.a_hostile_report,
}
each_report = pytest.mark.parametrize("name", REPORTS)


@each_report
def test_every_element_is_closed_where_it_was_opened(name: str) -> None:
    """The page is well formed, whatever the names in it are."""
    assert page_of(REPORTS[name]()).open == []


@each_report
def test_nothing_is_fetched_and_nothing_runs(name: str) -> None:
    """No element of the page loads or runs anything; addresses are fragments of the page itself."""
    html = render_page(REPORTS[name](), generated=GENERATED)
    page = Page(html)
    allowed = {"meta", "html", "head", "title", "style", "body", "a", "header", "main", "footer", "nav", "section"}
    allowed |= {
        "h1",
        "h2",
        "h3",
        "p",
        "ul",
        "ol",
        "li",
        "dl",
        "dt",
        "dd",
        "div",
        "span",
        "wbr",
        "strong",
        "em",
        "b",
        "i",
        "bdi",
    }
    allowed |= {"small", "code", "pre", "details", "summary", "figure", "figcaption"}
    allowed |= {"table", "caption", "colgroup", "col", "thead", "tbody", "tr", "th", "td"}
    allowed |= {"svg", "g", "path", "rect", "line", "text", "desc", "defs", "clippath"}
    assert {tag for tag, _ in page.elements} <= allowed
    for tag, attributes in page.elements:
        for attribute, value in attributes.items():
            assert not attribute.startswith("on"), (tag, attribute)
            assert attribute not in {"src", "srcset", "data", "action", "formaction", "xlink:href", "srcdoc", "ping"}
            if attribute == "href":
                assert value.startswith("#")
            if attribute not in {"title", "aria-label", "content"}:
                assert re.findall(r"url\(\s*(?!#)", value) == [], (tag, attribute, value)
    style = "".join(data for path, data in page.texts if path[-1:] == ("style",))
    assert not re.search(r"url\(|@import|@font-face|expression\(", style)
    policies = [one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"]


@each_report
def test_the_page_can_be_walked_without_eyes_or_mouse(name: str) -> None:
    """Headings go down one step at a time, tables have captions and scopes, references lead somewhere."""
    page = page_of(REPORTS[name]())
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        referred = [*attributes.get("aria-labelledby", "").split(), attributes.get("href", "").removeprefix("#")]
        assert {one for one in referred if one} <= set(ids)
    assert len(page.all("caption")) == len(page.all("table"))
    assert all("scope" in one for one in page.all("th"))
    for tag, attributes in page.elements:
        if tag == "svg":
            described = attributes.get("role") == "img" and {"aria-labelledby", "aria-label"} & attributes.keys()
            assert described or attributes.get("aria-hidden") == "true"
        if attributes.get("class") == "scroll":
            assert attributes["tabindex"] == "0"
            assert attributes["aria-label"]
    assert page.all("a")[0]["href"] == "#limited"


def test_who_is_limited_by_what() -> None:
    """A row says the client, its limit, the rule in words and as set, the meter, usage, utilisation, throttling."""
    text = page_of(example.a_report()).text
    assert "alice / etl Produce 1 MiB/s producer_byte_rate this user (level 3) user=alice" in text
    assert "this client alone user=alice 100 MiB 1,000 requests" in text
    assert "p95 100 %, max 150 % throttled 40 of 1,000 requests throttled for 1 min 05 s" in text
    assert "1 of 1 limited meters were throttled; 40 requests were throttled, 1 min 05 s in total" in text


def test_exact_figures_stand_behind_the_short_ones() -> None:
    """Short figures carry the plain number and its unit as their title."""
    titles = {one.get("title") for one in page_of(example.a_report()).all("span")}
    assert {"1048576 bytes/s", "104857600 bytes", "65000 ms"} <= titles


def test_sharers_of_a_meter_are_named() -> None:
    """A shared meter says how many share it, and names the largest."""
    sharers = [example.a_client(), example.a_client("alice", "")]
    row = example.a_limited_client(sharers=7, largest=sharers)
    text = page_of(example.a_report(limited=example.limited(row))).text
    assert "shared by 7 clients user=alice which alice / etl, alice / no client-id and 5 more" in text


def test_names_are_shown_and_not_obeyed() -> None:
    """Names appear as text; direction and control characters appear as codes; no name becomes an element."""
    page = page_of(example.a_hostile_report())
    assert "<script>alert(1)</script>" in page.text
    assert '"><img src=x onerror=alert(1)>' in page.text
    assert "{{ 7*7 }}{% raw %}" in page.text
    assert "\\u{202e}gnp.exe\\u{2066}" in page.text
    everything = "".join(data for _, data in page.texts) + "".join(
        value for _, attributes in page.elements for value in attributes.values()
    )
    assert not re.search(r"[\u202a-\u202e\u2066-\u2069\0\x1b\ud800-\udfff]", everything)
    assert "x" * 700 not in everything
    assert "(5,000 characters)" in page.text


def test_a_page_is_bounded_by_what_the_model_bounds() -> None:
    """More rows than are listed are counted, and the table that has them is named."""
    rows = [example.a_limited_client(user=f"user-{n}", client_id="app") for n in range(200)]
    page = page_of(example.a_report(limited=example.limited(*rows, total=5_000)))
    assert "The 25 worst of 5,000 limited clients" in page.text
    assert "Show the next 175" in page.text
    assert "4,800 more are not on this page; the table clients has them all" in page.text


def test_request_time_is_always_called_an_estimate() -> None:
    """Wherever a figure of request_percentage stands, the word estimate stands beside it."""
    use = example.a_use(rate_p95=20.0, rate_max=50.0)
    row = example.a_limited_client(key="request_percentage", limit=25.0, use=use)
    unlimited = example.an_unlimited_client(client_id="x", key="request_percentage", amount=1_000.0)
    page = page_of(
        example.a_report(
            limited=example.limited(row),
            timelines=[example.a_timeline(key="request_percentage", use=use)],
            unlimited=[unlimited],
        )
    )
    assert "by the request time limit of 25 % of a thread estimate that is set on" in page.text
    assert "alice / etl Request time 25 % of a thread estimate request_percentage" in page.text
    assert "max 200 % of the limit, estimated" in page.text
    assert re.search(r"Request time, limit [^:]* estimate:", page.text)
    assert "Request time estimate: 1 client without request_percentage" in page.text
    assert "Used (estimate) Requests bob / x 10 s of a thread" in page.text


def test_what_figures_lack_stands_beside_them() -> None:
    use = example.a_use(unknown_amounts=31)
    unlimited = example.an_unlimited_client(
        client_id="x", key="controller_mutation_rate", amount=10.0, unknown_amounts=3
    )
    text = page_of(
        example.a_report(
            limited=example.limited(example.a_limited_client(unknown_amounts=12, use=use)),
            timelines=[example.a_timeline(use=use)],
            unlimited=[unlimited],
        )
    ).text
    assert "1,000 requests without 12 requests of unknown amount" in text
    assert "max 150 % without 31 requests of unknown amount" in text
    assert "20 s over it, without 31 requests of unknown amount" in text
    assert "10 partitions without 3 requests of unknown amount" in text


def test_ambiguous_and_unexplained_throttling_are_explained() -> None:
    """An ambiguous cause says why it is one, an unexplained one what to compare."""
    episodes = example.some_episodes(
        example.an_episode(cause=AMBIGUOUS),
        example.an_episode(cause=UNEXPLAINED, meter=None, key="consumer_byte_rate"),
    )
    text = page_of(example.a_report(**episodes)).text
    assert "Ambiguous: 1 of 2 rows name a meter that may be the cause" in text
    assert "request_percentage is not marked in the log" in text
    assert "Unexplained: 1 of 2 episodes belong to clients for which no limit is known here" in text
    assert "Fetch: no known limit broker 1 no limit known here unexplained" in text


def test_definite_causes_bring_no_warning() -> None:
    """Without ambiguous or unexplained episodes neither is spoken of in that section."""
    text = page_of(example.a_report()).text
    assert "Ambiguous:" not in text
    assert "Unexplained:" not in text
    assert "2026-01-02 03:04:25 12.5 s Produce: all clients of the user user=alice, broker 1 the produce limit" in text


def test_times_are_those_of_the_summary_s_zone() -> None:
    """Times are printed with their date in the zone of the analysis, and the zone is named."""
    report = example.a_report()
    there = example.a_summary(timezone="America/New_York")
    text = page_of(dataclasses.replace(report, summary=there)).text
    assert "2026-01-01 22:04:05 to 2026-01-01 22:06:05 (2 min 00 s), America/New_York = UTC-05:00" in text
    assert "on 2026-01-03 07:00 (America/New_York)" in text


def test_rejected_lines_say_what_to_do() -> None:
    """Rejected lines stand by reason with a sample, its place and advice."""
    text = page_of(example.a_report()).text
    assert "broken JSON 1 The line is cut short or damaged" in text
    assert 'a.log, line 17: truncated {"isForwarded":' in text


def test_an_empty_log_gives_a_page_that_says_so() -> None:
    """Without requests the page says that there is nothing to say, and has no empty table."""
    page = page_of(example.an_empty_report())
    assert "No client request was found in the log" in page.text
    assert page.all("table") == []
    assert "Every line could be used." in page.text


def test_no_limits_at_all() -> None:
    """Where no limit holds the page says so and lists the largest clients."""
    totals = Row(throttled_requests=0, throttle_ms=0)
    nobody = {"limited": example.limited(), "timelines": [], "limited_meters": 0, **example.some_episodes()}
    text = page_of(example.a_report(totals=totals, **nobody)).text
    assert "No limit holds for any of the clients in this log." in text
    assert "No request was throttled." in text
    assert "bob / no client-id 10 MiB 10" in text


def test_amounts_that_are_not_known_are_not_shown_as_0() -> None:
    """Unknown amounts, rates and identities are called unknown."""
    use = example.a_use(rate_p95=None, rate_max=None)
    row = example.a_limited_client(amount=None, use=use, throttle=None, user=None, throttled_requests=0)
    timeline = example.a_timeline(use=use, series=(), spans=())
    report = example.a_report(limited=example.limited(row), timelines=[timeline])
    text = page_of(report).text
    assert "unknown / etl" in text
    assert "unknown 1,000 requests unknown not throttled" in text
    assert "Not drawn, because no amount of theirs is known from the log: user=alice (produce)." in text


def test_several_clusters_are_told_apart() -> None:
    """With more than one cluster every row names its own."""
    rows = [example.a_limited_client(cluster=name) for name in ("east", "west")]
    report = example.a_report(
        clusters=["east", "west"],
        brokers=[("east", 1), ("west", 1)],
        brokers_total=2,
        limited=example.limited(*rows),
    )
    text = page_of(report).text
    assert "east, west; 2 brokers: east/1, west/1" in text
    assert "alice / etl east" in text
    assert "alice / etl west" in text


def test_the_same_report_gives_the_same_page() -> None:
    """Nothing in the page depends on when or how often it is drawn."""
    assert render_page(example.a_report(), generated=GENERATED) == render_page(example.a_report(), generated=GENERATED)


def test_the_chart_is_legal_vega_lite() -> None:
    """Charts are drawn without being validated, so they are validated here."""
    datasets: dict[str, charts.Points] = {}
    chart = charts.chart_of(example.a_timeline(), example.RANGE, UTC, datasets)
    assert chart.to_dict(validate=True)["width"] > 0
    assert {"throttled", "rate0", "limit0"} <= datasets.keys()
