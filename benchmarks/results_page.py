"""`results/README.md`: one page that shows every result file beside it, with the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from benchmarks.idiomatic_page import idiomatic_section

__all__ = ["RESULTS", "write_readme"]

RESULTS: Final = Path(__file__).parent / "results"

_HEAD: Final = """# Results

Written by the benchmarks from the JSON files beside it. Compare within one run: machines are noisy and differ, ratios
between tools that ran interleaved on one machine are what is claimed. What each benchmark is held to, and how to run
it: [../README.md](../README.md).
"""


def write_readme(results: Path) -> None:
    """Write the page anew from all result files."""
    sections = [_HEAD]
    analyses = sorted((_load(path) for path in results.glob("analyze-*.json")), key=lambda one: int(one["lines"]))
    if analyses:
        sections.append(_analyze(analyses))
    of_file = {
        "memory.json": _memory,
        "resolve.json": _resolve,
        "codec.json": _codec,
        "server.json": _server,
        "metering.json": _metering,
        "gateway.json": _gateway,
        "gateway-clients.json": _gateway_clients,
        "gateway-limits.json": _gateway_limits,
        "gateway-lossless.json": _gateway_lossless,
        "dataset-commits.json": _dataset_commits,
        "object-store.json": _object_store,
    }
    sections += [section(_load(results / name)) for name, section in of_file.items() if (results / name).exists()]
    what_ifs = sorted((_load(path) for path in results.glob("what-if-*.json")), key=lambda one: int(one["rows"]))
    if what_ifs:
        sections.append(_what_if(what_ifs))
    idiomatic = [_load(path) for path in sorted(results.glob("idiomatic-*.json"))]
    if idiomatic:
        sections.append(idiomatic_section(idiomatic, _where))
    (results / "README.md").write_text("\n".join(sections), encoding="utf-8")


def _load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def _where(result: dict[str, Any]) -> str:
    machine = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in result.get("versions", {}).items())
    text = (
        f"{machine['cores']} cores, {machine['processor']}, {machine['memory_gb']:.0f} GB, Python {machine['python']}"
    )
    return f"{text}{', ' if versions else ''}{versions}; {result['date']}"


def _analyze(analyses: list[dict[str, Any]]) -> str:
    rows = [
        "## `kquota analyze` beside DuckDB and one Python process",
        "",
        "Medians, least and most of the interleaved rounds; start included; all tools gave the same sums.",
        "",
        "| lines | tool | wall s | CPU s | peak memory MB | wall beside DuckDB | wall beside json.loads | start s |",
        "|---:|---|---|---:|---:|---:|---:|---:|",
    ]
    for result in analyses:
        for tool, found in result["tools"].items():
            wall = found["wall_s"]
            ratios = [f"{found[name]:.2f} x" for name in ("wall_beside_duckdb", "wall_beside_json")]
            rows.append(
                f"| {result['lines']:,} | {tool} | {wall['median']:.1f} ({wall['least']:.1f}-{wall['most']:.1f}) "
                f"| {found['cpu_s']['median']:.1f} | {found['peak_pss_mb']:.0f} | {' | '.join(ratios)} "
                f"| {found['start_s']:.1f} |"
            )
    rows += ["", "Start is the wall time of the same command over 1,000 lines.", ""]
    for result in analyses:
        rows.append(
            f"- {result['lines']:,} lines ({result['log_bytes'] / 1e9:.1f} GB), {result['rounds']} rounds, "
            f"load {result['machine']['load_1min']} before: {_where(result)}"
        )
    rows += ["", "```", *analyses[-1]["commands"].values(), "```", ""]
    return "\n".join(rows)


def _memory(result: dict[str, Any]) -> str:
    rows = [
        "## Memory of `kquota analyze` as lines grow",
        "",
        "Peak of the whole process tree (JVM and Python workers), shared pages counted once.",
        "",
        "| lines | peak MB | wall s |",
        "|---:|---:|---:|",
    ]
    rows += [f"| {run['lines']:,} | {run['peak_pss_mb']:.0f} | {run['wall_s']:.1f} |" for run in result["runs"]]
    rows += [
        "",
        f"{result['growth']:.2f} x the memory for {result['line_growth']:.0f} x the lines. {_where(result)}",
        "",
    ]
    return "\n".join(rows)


def _resolve(result: dict[str, Any]) -> str:
    sizes = list(result["median_ns"]["resolve"])
    rows = [
        "## Resolving one client",
        "",
        f"| median ns | {' | '.join(f'{int(size):,} entities' for size in sizes)} |",
        f"|---|{'---:|' * len(sizes)}",
    ]
    rows += [
        f"| {tool} | {' | '.join(f'{by_size[size]:,.0f}' for size in sizes)} |"
        for tool, by_size in result["median_ns"].items()
    ]
    rows += ["", *(f"- {name}: {value:,.2f}" for name, value in result["ratios"].items())]
    rows += ["", f"`{result['command']}`: {_where(result)}", ""]
    return "\n".join(rows)


def _object_store(result: dict[str, Any]) -> str:
    what = f"{result['lines']:,} lines, {result['log_bytes'] / 1e9:.1f} GB, in turn, {result['rounds']} rounds"
    rows = [
        "## A log in an object store beside the same on the disk",
        "",
        f"`kquota pipeline ingest` of {what}, start included, to the same tables. The store is on the same machine.",
        "",
        "| log | wall s | CPU s |",
        "|---|---:|---:|",
    ]
    for place, found in result["places"].items():
        rows.append(f"| {place} | {found['wall_s']['median']:.1f} | {found['cpu_s']['median']:.1f} |")
    beside = result["object_store_beside_disk"]
    rows += ["", f"The store takes {beside['wall']:.2f} x the time, and {beside['cpu']:.2f} x the CPU.", ""]
    rows += [f"`{result['command']}` on {_where(result)}", ""]
    return "\n".join(rows)


def _codec(result: dict[str, Any]) -> str:
    rows = [
        "## The wire's codec beside kio and kafka-python",
        "",
        f"A DescribeClientQuotas answer of 10,000 entries, {result['bytes']:,} bytes. Medians.",
        "",
        "| tool | write ms | read ms | write beside kquota | read beside kquota |",
        "|---|---:|---:|---:|---:|",
    ]
    for tool in result["median_ms"]["encode"]:
        times = [result["median_ms"][part][tool] for part in ("encode", "decode")]
        ratios = [f"{result['ratios'].get(f'{part}: {tool} / kquota', 1.0):.2f} x" for part in ("encode", "decode")]
        rows.append(f"| {tool} | {times[0]:.1f} | {times[1]:.1f} | {' | '.join(ratios)} |")
    rows += ["", f"`{result['command']}` on {_where(result)}", ""]
    return "\n".join(rows)


def _server(result: dict[str, Any]) -> str:
    names = list(next(iter(result["p50_ms"].values())))
    rows = [
        "## `kquota serve` beside a real broker",
        "",
        "The same frames from one client on plain sockets, in turns; milliseconds for each request.",
        "",
        f"| request | {' | '.join(f'{name} p50 (p99)' for name in names)} | kquota beside Kafka, p50 |",
        f"|---|{'---:|' * len(names)}---:|",
    ]
    for request, p50 in result["p50_ms"].items():
        p99 = result["p99_ms"][request]
        times = " | ".join(f"{p50[name]:.3f} ({p99[name]:.2f})" for name in names)
        rows.append(f"| {request} | {times} | {result['p50_kquota_beside_kafka'][request]:.2f} x |")
    rows += ["", f"`{result['command']}` on {_where(result)}", ""]
    return "\n".join(rows)


def _metering(result: dict[str, Any]) -> str:
    rows = [
        "## A decision of the metering engine",
        "",
        "Median nanoseconds of the interleaved rounds; beside them how many times kquota's own.",
        "",
        "| trace | kquota | beside it |",
        "|---|---:|---|",
    ]
    for what, by in result["median_ns"].items():
        others = ", ".join(
            f"{who} {ns:,} ({result['beside_kquota'][what][who]:.2f} x)" for who, ns in by.items() if who != "kquota"
        )
        rows.append(f"| {what} | {by['kquota']:,} | {others} |")
    rows += ["", f"A meter takes {result['bytes_per_meter']:,} bytes.", ""]
    rows += [f"`{result['command']}` on {_where(result)}", ""]
    return "\n".join(rows)


def _gateway(result: dict[str, Any]) -> str:
    names = list(dict.fromkeys(name for case in result["cases"] for name in case["variants"]))
    rows = [
        "## `kquota gateway` beside a proxy that copies bytes blindly",
        "",
        f"Each cell, in this order: {' / '.join(names)}. Work is the larger frame, connections x requests in flight.",
        "Medians of the interleaved rounds, ratios of each round; latency over all rounds; CPU of the proxy for a pair",
        "of request and answer, MB/s of both directions.",
        "",
        "| work | pairs/s | beside blind copy | beside direct | MB/s | p50 us | p99 us | CPU us |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in result["cases"]:
        found = [case["variants"].get(name) for name in names]
        cells = [
            [one and f"{one['pairs_s']['median']:,}" for one in found],
            *([one and _figure(one[key], 2) for one in found] for key in ("beside_blind_copy", "beside_direct")),
            [one and _figure(one["mb_s"], 0) for one in found],
            *([one and _figure(one[key], 1) for one in found] for key in ("p50_us", "p99_us", "cpu_us")),
        ]
        work = f"{case['kind']} {case['frame_bytes']:,} B, {case['connections']} x {case['in_flight']}"
        columns = " | ".join(" / ".join(text or "-" for text in cell) for cell in cells)
        rows.append(f"| {work}{', TLS' if case['tls'] else ''} | {columns} |")
    rows.append("")
    for name, reached in result["goals"].items():
        rows.append(f"- {name}: " + ", ".join(f"{what} {value}" for what, value in reached.items()))
    for name, found in result["idle_bytes_per_connection"].items():
        rows.append(f"- an idle connection, {name}: " + ", ".join(f"{what} {one:,} B" for what, one in found.items()))
    rows += ["", f"`{result['command']}`, load {result['machine']['load_1min']} before: {_where(result)}", ""]
    return "\n".join(rows)


def _gateway_clients(result: dict[str, Any]) -> str:
    rows = [
        f"## Real clients through the gateway and directly to Kafka {result['kafka']}",
        "",
        "Medians of the interleaved rounds, the ratio that of each round.",
        "",
        "| work | direct MB/s | gateway MB/s | beside direct |",
        "|---|---:|---:|---:|",
    ]
    rows += [
        f"| {work} | {mb_s['direct']:.0f} | {_figure(mb_s.get('gateway'), 0)} "
        f"| {_figure(result['beside_direct'].get(work), 2)} |"
        for work, mb_s in result["mb_s"].items()
    ]
    rows += ["", f"`{result['command']}`, load {result['machine']['load_1min']} before: {_where(result)}", ""]
    return "\n".join(rows)


def _gateway_limits(result: dict[str, Any]) -> str:
    names = list(dict.fromkeys(name for work in result["works"] for name in work["endpoints"]))
    rows = [
        f"## What clients get through beside their limit, Kafka {result['kafka']}",
        "",
        f"Observed / limit by who enforces it: the mean, the least and the most window of {result['window_s']:g} s,",
        "and the variation of seconds.",
        "",
        f"| work | {' | '.join(names)} | missed |",
        f"|---|{'---|' * len(names)}---|",
    ]
    for work in result["works"]:
        cells = [
            f"{one['mean']:.3f} ({one['least']:.3f}-{one['most']:.3f}), {one['variation']:.2f}"
            for one in (work["endpoints"][name] for name in names)
        ]
        rows.append(f"| {work['work']} | {' | '.join(cells)} | {'; '.join(work['missed'])} |")
    rows += ["", f"`{result['command']}`, load {result['machine']['load_1min']} before: {_where(result)}", ""]
    return "\n".join(rows)


def _gateway_lossless(result: dict[str, Any]) -> str:
    rows = [
        f"## What is acknowledged through the gateway while brokers and the gateway fail, Kafka {result['kafka']}",
        "",
        f"{', '.join(result['clients'])}, all at once, in one topic for each run.",
        "Of transactions every third is aborted.",
        "",
        "| run | sent | acknowledged | in the log | repeated | s | wrong |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    rows += [
        f"| {one['run']} | {one['sent']:,} | {one['acknowledged']:,} | {one['in_the_log']:,} | {one['repeated']} "
        f"| {one['seconds']:.0f} | {'; '.join(one['problems'])} |"
        for one in result["runs"]
    ]
    rows += [
        "",
        "What producers without idempotence repeat, by the fault, in each round:",
        "",
        "| fault | direct | gateway |",
        "|---|---|---|",
    ]
    rows += [
        f"| {fault} | {' | '.join(', '.join(map(str, by.get(one, []))) or '-' for one in ('direct', 'gateway'))} |"
        for fault, by in result["repeated"].items()
    ]
    rows += ["", *(f"- {problem.splitlines()[0]}" for problem in result["problems"])]
    rows += ["", f"`{result['command']}`, load {result['machine']['load_1min']} before: {_where(result)}", ""]
    return "\n".join(rows)


def _dataset_commits(result: dict[str, Any]) -> str:
    rows = [
        "## What is seen of a dataset while its writers are killed",
        "",
        f"Two writers at a time, killed at points spread over the {result['points']} of a run.",
        "Committed are those whose rows others see.",
        "",
        "| killed | kills | committed |",
        "|---|---:|---:|",
    ]
    rows += [f"| {point} | {row['kills']} | {row['committed']} |" for point, row in result["killed"].items()]
    rows += [
        "",
        f"{result['survived']} writers came to their end. In {result['reads']:,} reads of both tables meanwhile",
        f"and after {result['commits']} commits {len(result['problems'])} mistakes were found.",
        "",
        *(f"- {problem}" for problem in result["problems"]),
    ]
    rows += [f"`{result['command']}`, load {result['machine']['load_1min']} before: {_where(result)}", ""]
    return "\n".join(rows)


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _what_if(results: list[dict[str, Any]]) -> str:
    rows = [
        "## Utilisation and what-if over usage",
        "",
        "Medians of the interleaved rounds, start included; without start where kquota's steps say how long it took.",
        "All tools gave the same figures, meter by meter. Memory is the peak of all processes together.",
        "",
        "| rows | meters | tool | wall s | without start s | CPU s | peak memory MB |",
        "|---:|---:|---|---:|---:|---:|---:|",
    ]
    for result in results:
        for tool, found in result["tools"].items():
            steps = found.get("steps_s")
            work = f"{steps['all'] - steps['start Spark']:.1f}" if steps else ""
            rows.append(
                f"| {result['rows']:,} | {result['meters']:,} | {tool} | {found['wall_s']['median']:.1f} | {work} "
                f"| {found['cpu_s']['median']:.1f} | {found['peak_pss_mb']:,} |"
            )
    names = list(dict.fromkeys(name for result in results for name in result["ratios"]))
    sizes = [f"{one['rows']:,} rows" for one in results]
    rows += ["", f"| ratio | {' | '.join(sizes)} |"]
    rows += [f"|---|{'---:|' * len(results)}"]
    for name in names:
        ratios = [f"{one['ratios'][name]:.2f}" if name in one["ratios"] else "" for one in results]
        rows.append(f"| {name} | {' | '.join(ratios)} |")
    rows.append("")
    for result in results:
        plain = result.get("plain")
        looked_at = (
            f" The plain program looked at one user of {plain['parts']}: {plain['rows']:,} rows, "
            f"{plain['meters']:,} meters."
            if plain
            else ""
        )
        rows.append(
            f"- `{result['command']}`: {result['rules']:,} rules, {result['seconds'] / 3600:.1f} hours of usage, "
            f"{result['usage_bytes'] / 1e6:,.0f} MB.{looked_at} {_where(result)}"
        )
    rows.append("")
    return "\n".join(rows)
