"""How the outcome of ``kquota callback test`` is printed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kquota.cli.console import plain_cell, plain_table, wide_console
from kquota.figures import duration, limit_text
from kquota.files import dump_json
from kquota.quotas import MeterKey, format_number

if TYPE_CHECKING:
    from kquota.metering.callback_conformance import ConformanceCheck, MeterOutcome, ThrottleTotals
    from kquota.metering.callback_probe import CallTimes, Finding

__all__ = ["print_json", "print_text"]

_SHOWN_METERS: Final = 20
_WIDE: Final = 130
_ON_WIDE_TERMINALS: Final = ["requests", "amount", "longest"]
"""Columns that a narrow one has no room for."""


def print_json(name: str, dataset: str, traffic: Any, check: ConformanceCheck, findings: list[Finding]) -> None:
    """Everything, as one object."""
    answer = {
        "callback": name,
        "dataset": dataset,
        "grain": "request" if traffic.is_per_request else "cell",
        "brokers": traffic.brokers(),
        "records": check.records,
        "skipped": traffic.skipped,
        "keeps_contract": not findings,
        "findings": [
            {
                "fault": one.fault.name.lower(),
                "method": one.method,
                "count": one.count,
                "question": one.question,
                "answer": one.answer,
            }
            for one in findings
        ],
        "methods": [
            {
                "method": method,
                "calls": times.calls,
                "p50_ms": times.percentile_ms(0.5),
                "p99_ms": times.percentile_ms(0.99),
                "max_ms": times.max_ms,
                "over_budget": times.over_budget,
                "over_budget_share": times.over_budget / times.calls,
            }
            for method, times in check.times.items()
        ],
        "meters": [
            {
                "broker_id": meter.broker_id,
                "meter": {tag: value for tag, value in meter.tags.items() if value},
                "key": meter.quota_type.key,
                "requests": meter.requests,
                "amount": meter.amount,
                "limit_min": meter.lowest_limit if meter.is_limited else None,
                "limit_max": meter.highest_limit if meter.is_limited else None,
                "callback": _throttle_fields(meter.callback),
                "kafka": _throttle_fields(meter.kafka),
                "logged": _throttle_fields(meter.logged),
            }
            for meter in check.meters()
        ],
    }
    sys.stdout.write(dump_json(answer) + "\n")


def _throttle_fields(throttles: ThrottleTotals) -> dict[str, int]:
    return {
        "throttled_requests": throttles.count,
        "throttle_ms": throttles.total_ms,
        "throttle_max_ms": throttles.longest_ms,
    }


def print_text(
    name: str, dataset: str, traffic: Any, check: ConformanceCheck, findings: list[Finding], *, has_quotas: bool
) -> None:
    """For people: the faults, the calls, and the meters that matter most."""
    console = wide_console()

    def say(text: str) -> None:
        console.print(plain_cell(text), soft_wrap=True)

    seconds = 0 if check.first_ms is None else (check.last_ms - check.first_ms) / 1000
    brokers = traffic.brokers()
    say(
        f"{name} on {check.records:,} {traffic.grain} of {len(brokers)} broker{'s' * (len(brokers) != 1)}, "
        f"{duration(seconds * 1000)} of {dataset}"
    )
    if not traffic.is_per_request:
        say(
            "The dataset has no single requests (kquota analyze --keep-requests keeps them): what a client used in a "
            "second counts as one request, at the beginning of that second."
        )
    if traffic.skipped:
        say(f"{traffic.skipped:,} more are left out: their client or what they used is not known.")
    if not has_quotas:
        say(f"There are no quotas: {dataset} has no quotas.yaml; --quotas FILE gives some.")
    console.print()
    if findings:
        console.print("[bold red]It does not keep its contract.[/] What is wrong, the worst first:")
        for one in findings:
            say(f"  {one.method} {one.fault.value}: {one.count:,}x")
            say(f"    such as {one.question} {one.answer}")
    else:
        console.print("[bold green]It keeps its contract.[/]")
    console.print()
    console.print(_times_table(check))
    console.print()
    meters = check.meters()
    shown = [one for one in meters if one.is_limited or one.kafka.count or one.logged.count][:_SHOWN_METERS]
    if shown:
        console.print(_meters_table(shown, several=len(brokers) > 1, is_wide=console.width >= _WIDE))
        if any(one.callback.total_ms > 2 * one.logged.total_ms + seconds * 1000 for one in shown):
            say(
                "Requests come as they were recorded, throttled or not: under limits much tighter than then, throttle "
                "times add up."
            )
    if len(shown) < len(meters):
        others = len(meters) - len(shown)
        what = f"{'more ' * bool(shown)}meter{'s' * (others != 1)}"
        say(f"{others:,} {what} throttled for less, or not at all: --format json has all.")


def _times_table(check: ConformanceCheck) -> Any:
    columns: dict[str, Callable[[tuple[str, CallTimes]], str]] = {
        "method": lambda one: one[0],
        "calls": lambda one: f"{one[1].calls:,}",
        "p50": lambda one: _fine(one[1].percentile_ms(0.5)),
        "p99": lambda one: _fine(one[1].percentile_ms(0.99)),
        "longest": lambda one: _fine(one[1].max_ms),
        f"over {check.budget_ms:g} ms": lambda one: _over_budget(one[1]),
    }
    return plain_table(check.times.items(), columns, folded=("method",), title="Calls")


def _over_budget(times: CallTimes) -> str:
    return f"{times.over_budget:,} ({times.over_budget / times.calls:.2%})" if times.over_budget else "-"


def _meters_table(meters: Iterable[MeterOutcome], *, several: bool, is_wide: bool) -> Any:
    columns: dict[str, Callable[[MeterOutcome], str]] = {
        "broker": lambda meter: str(meter.broker_id),
        "meter": lambda meter: _meter_name(meter.tags),
        "key": lambda meter: meter.quota_type.key,
        "requests": lambda meter: f"{meter.requests:,}",
        "amount": lambda meter: f"{meter.amount:,.0f}",
        "limit": _limit,
        "throttled": lambda meter: _throttle_text(meter.callback),
        "longest": lambda meter: duration(meter.callback.longest_ms) if meter.callback.count else "-",
        "by Kafka's rules": lambda meter: _throttle_text(meter.kafka),
        "logged": lambda meter: _throttle_text(meter.logged),
    }
    left_out = ([] if several else ["broker"]) + ([] if is_wide else _ON_WIDE_TERMINALS)
    return plain_table(
        meters,
        {name: cell for name, cell in columns.items() if name not in left_out},
        folded=("meter", "key"),
        title="What it would have done: how many requests were throttled, and for how long in all",
        min_width=10,
        no_wrap=True,
    )


def _meter_name(tags: Mapping[str, str]) -> str:
    if "" in tags:  # of all that are too many
        return tags[""]
    return MeterKey(tags).to_text() or "(no tags)"


def _limit(meter: MeterOutcome) -> str:
    if not meter.is_limited:
        return "-"
    low, high = (round(limit, 2 if limit < 100 else None) for limit in (meter.lowest_limit, meter.highest_limit))
    text = limit_text(meter.quota_type.key, high)
    return text if low == high else f"{format_number(low)} to {text}"


def _throttle_text(throttles: ThrottleTotals) -> str:
    return f"{throttles.count:,} {duration(throttles.total_ms):>11}" if throttles.count else "-"


def _fine(ms: float) -> str:
    return f"{ms * 1000:,.1f} us" if ms < 0.1 else f"{ms:,.2f} ms" if ms < 100 else f"{ms:,.0f} ms"
