"""The same traces to Kafka's own quota managers and to our engine, and everything in which their answers differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from kquota.config import BrokerConfig
from kquota.metering.throttling import LONGEST_MS
from kquota.quotas import is_same_value
from tests.kit.line_program import LineProgram, java_command
from tests.kit.metering_traces import CLASSES, Trace

__all__ = ["OUTCOMES", "Difference", "Report", "compare", "metering_judge", "same_answer"]

Answer: TypeAlias = Mapping[str, Any]
Replay: TypeAlias = Callable[[Iterable[Mapping[str, Any]], BrokerConfig], Iterator[dict[str, Any]]]

PROGRAM: Final = Path(__file__).parents[1] / "real" / "java" / "MeteringTraces.java"
MOST_DIFFERENCES: Final = 20
GROUPS: Final = ("Produce", "Fetch", "Request", "ControllerMutation")
OUTCOMES: Final = ("no quotas", "unlimited", "within", "throttled", "capped", "beyond 32 bits", "rejected")
_DOUBLES: Final = ("limit", "value")


def metering_judge(jars: Path, errors: Path) -> LineProgram:
    """Kafka's managers: each line a trace, answered by a list of answers. Needs a compiler."""
    return LineProgram(java_command(jars, PROGRAM), errors=errors)


@dataclass(frozen=True, slots=True)
class Difference:
    """An answer in which they differ; the first of its trace, because others follow from it."""

    trace: Trace
    operation: int
    """The number of the operation that was answered, from 0."""
    kafka: Answer | None
    ours: Answer | None

    def __str__(self) -> str:
        operations = "\n".join(f"    {one}" for one in self.trace.operations[: self.operation + 1])
        place = f"trace {self.trace.number} ({self.trace.kind}), operation {self.operation}; {self.trace.broker}:"
        if self.kafka is not None and self.ours is not None and "metrics" in self.kafka:
            found = "\n  ".join(different_metrics(self.kafka, self.ours))
        else:
            found = f"Kafka: {self.kafka}\n  ours:  {self.ours}"
        return f"{place}\n{operations}\n  {found}"


@dataclass(slots=True)
class Report:
    """What was compared."""

    traces: int = 0
    operations: int = 0
    answers: int = 0
    metrics: int = 0
    """Metrics that were compared, at all looks at them."""
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    """Of each class, what Kafka made of its records."""
    differences: list[Difference] = field(default_factory=list)

    def empty(self) -> list[str]:
        """Classes and outcomes that did not occur."""
        found = sum(self.outcomes.values(), Counter[str]())
        return [one for one in CLASSES if one not in self.outcomes] + [one for one in OUTCOMES if not found[one]]

    def __str__(self) -> str:
        rows = [" ".join(f"{one:>14}" for one in OUTCOMES) + "  class"]
        rows += [
            " ".join(f"{self.outcomes.get(kind, Counter())[one]:14}" for one in OUTCOMES) + f"  {kind}"
            for kind in CLASSES
        ]
        rows.append(
            f"{self.traces} traces of {self.operations} operations compared, {self.answers} answers and {self.metrics} "
            f"metrics: {len(self.differences)} traces differ"
        )
        return "\n".join([*rows, *map(str, self.differences)])


def compare(traces: Iterable[Trace], judge: LineProgram, replay: Replay) -> Report:
    """Ask both for all answers of all traces; ends early where many differ."""
    report = Report()
    for trace in traces:
        kafka: Sequence[Answer] = judge.ask(trace.line())
        ours: Sequence[Answer] = list(replay(trace.operations, trace.broker))
        answered = [number for number, one in enumerate(trace.operations) if one["op"] in ("record", "metrics")]
        assert len(kafka) == len(answered), trace
        report.traces += 1
        report.operations += len(trace.operations)
        recorded = [one for one in kafka if "metrics" not in one]
        report.answers += len(recorded)
        report.metrics += sum(len(one["metrics"]) for one in kafka if "metrics" in one)
        outcomes = report.outcomes.setdefault(trace.kind, Counter())
        outcomes.update(map(_outcome, recorded))
        difference = next((n for n, one in enumerate(kafka) if n >= len(ours) or not same_answer(one, ours[n])), None)
        if difference is not None:
            found = ours[difference] if difference < len(ours) else None
            report.differences.append(Difference(trace, answered[difference], kafka[difference], found))
        elif len(ours) > len(kafka):
            report.differences.append(Difference(trace, len(trace.operations), None, ours[len(kafka)]))
        if len(report.differences) >= MOST_DIFFERENCES:
            break
    return report


def _told_ms(kafka: Answer) -> int:
    """What is to be told: where a broker cuts its 64 bits to 32, the nearest that 32 bits can say; none below 0."""
    told_ms: int = kafka["throttle_ms"]
    unbounded_ms: int = kafka["unbounded_throttle_ms"]
    cut_ms = (unbounded_ms + 2**31) % 2**32 - 2**31
    if cut_ms != unbounded_ms and told_ms in (cut_ms, max(0, cut_ms)):
        told_ms = min(unbounded_ms, LONGEST_MS)
    return max(0, told_ms)


def same_answer(kafka: Answer, ours: Answer) -> bool:
    """Equal, values to the last bit."""
    if "metrics" in kafka or "metrics" in ours:
        return kafka.get("t_ms") == ours.get("t_ms") and not different_metrics(kafka, ours)
    kafka = {
        **kafka,
        "throttle_ms": _told_ms(kafka),
        "unbounded_throttle_ms": max(0, kafka["unbounded_throttle_ms"]),
    }
    return kafka.keys() == ours.keys() and all(
        is_same_value(_number(kafka[name]), ours[name]) if name in _DOUBLES else kafka[name] == ours[name]
        for name in kafka
    )


def _number(value: float | str | None) -> float | None:
    """JSON has texts for numbers that are none."""
    return float(value) if isinstance(value, str) else value


def different_metrics(kafka: Answer, ours: Answer, groups: Collection[str] = GROUPS) -> list[str]:
    """In words, the metrics of these groups that only one of them has, and those that differ."""
    theirs, found = _metrics(kafka, groups), _metrics(ours, groups)
    return [
        f"{name} {what}: Kafka {theirs.get((what, name))}, ours {found.get((what, name))}"
        for what, name in sorted(theirs.keys() | found.keys())
        if not _same_metric(theirs.get((what, name)), found.get((what, name)))
    ]


def _metrics(answer: Answer, groups: Collection[str]) -> dict[tuple[str, str], Answer]:
    metrics = [one for one in answer.get("metrics", ()) if one["group"] in groups]
    by_name = {(one["object_name"], one["name"]): one for one in metrics}
    assert len(by_name) == len(metrics), answer
    return by_name


def _same_metric(kafka: Answer | None, ours: Answer | None) -> bool:
    if kafka is None or ours is None or {**kafka, "value": None} != {**ours, "value": None}:
        return False
    return is_same_value(_number(kafka["value"]), ours["value"])


def _outcome(answer: Answer) -> str:
    throttle_ms, unbounded_ms = answer["throttle_ms"], answer["unbounded_throttle_ms"]
    if answer["value"] is None:
        return "no quotas"
    if answer.get("rejected"):
        return "rejected"
    if unbounded_ms >= 2**31:
        return "beyond 32 bits"
    if unbounded_ms:
        return "capped" if throttle_ms < unbounded_ms else "throttled"
    return "unlimited" if answer["limit"] is None else "within"
