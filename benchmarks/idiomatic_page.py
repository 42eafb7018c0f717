"""The part of the results page about kquota's own way beside idiomatic PySpark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

__all__ = ["idiomatic_section"]

_SPECIAL: Final = "special"
_HEAD: Final = """\
Medians of the interleaved rounds, with least and most. `special` is kquota as it was at the time, and of the other
special forms each has one part of it taken out: [ADR 20](../../docs/adr/0020-special-paths-under-spark.md) tells what
became of the parts. All forms wrote the same tables. Times are in seconds: wall with the start of Spark, work without.
Ratios are those of the work, and of CPU with the start, to `special`. Memory is the peak of all processes. Where the
load before was more than the cores, other programs ran, and wall and work say nothing: compare CPU."""
_FIGURES: Final = ("wall_s", "work_s", "cpu_s")


def idiomatic_section(results: Sequence[dict[str, Any]], where: Callable[[dict[str, Any]], str]) -> str:
    """A table of all forms, each beside kquota's own.

    :param where: says in a line on which machine a result was found.
    """
    rows = [
        "## kquota's own way beside idiomatic PySpark",
        "",
        _HEAD,
        "",
        "| rows | step | form | rounds | wall | work | CPU | memory MB | shuffled MB | work ratio | CPU ratio |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for result in sorted(results, key=lambda one: (one["shape"], one["rows"], one["partitions"] or 0)):
        partitions = f", {result['partitions']} partitions" if result["partitions"] else ""
        size = f"{result['rows']:,} {result['shape']}{partitions}"
        for step, forms in result["steps"].items():
            special = forms[_SPECIAL]
            for form, found in forms.items():
                times = [_spread(found[name]) for name in _FIGURES]
                ratios = [f"{found[name]['median'] / special[name]['median']:.2f}" for name in ("work_s", "cpu_s")]
                cells = [
                    size,
                    step,
                    form,
                    str(result["rounds"]),
                    *times,
                    f"{found['peak_pss_mb']:,}",
                    f"{found['shuffle_mb']:,.0f}",
                    *ratios,
                ]
                rows.append(f"| {' | '.join(cells)} |")
    rows.append("")
    rows += [
        f"- `{result['command']}`: {result['usage_bytes'] / 1e6:,.0f} MB of usage, load "
        f"{result['machine']['load_1min']} before; {where(result)}"
        for result in results
    ]
    rows.append("")
    return "\n".join(rows)


def _spread(seconds: dict[str, float]) -> str:
    """Median, least and most; the first alone where they are one."""
    found = f"{seconds['median']:.1f}"
    return found if seconds["least"] == seconds["most"] else f"{found} ({seconds['least']:.1f}-{seconds['most']:.1f})"
