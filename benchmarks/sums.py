"""Do all tools say the same? Every sum of every client, and every cell of one second, is compared.

Byte and partition sums, request counts and throttle times have to be equal, percent-seconds to 1e-6 of the value (they
are sums of doubles, and each tool adds in its own order).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import duckdb

from benchmarks.generate_log import KEYS

__all__ = ["DifferentSumsError", "check_sums"]

_COLUMNS: Final = "user, client_id, key, amount, requests, throttled_requests, throttle_ms"
_DIFFERENT: Final = """
a.amount is null or b.amount is null or a.requests <> b.requests or a.throttled_requests <> b.throttled_requests
or a.throttle_ms <> b.throttle_ms or if(key = 'request_percentage',
    abs(a.amount - b.amount) > 1e-6 * greatest(abs(a.amount), abs(b.amount)), a.amount <> b.amount)
"""


class DifferentSumsError(AssertionError):
    """Two tools give different sums for the same log."""


def check_sums(manifest: Mapping[str, Any], outputs: Mapping[str, Path]) -> None:
    """Compare what every tool wrote with the log's own sums, and all tools' cells with each other.

    :raises DifferentSumsError: names the tool and the first differences.
    """
    good = manifest["profile"]["lines"] - manifest["profile"]["bad"]
    with duckdb.connect() as connection:
        connection.execute(f"create table claimed ({_typed(with_cell=False)})")
        connection.executemany("insert into claimed values (?, ?, ?, ?, ?, ?, ?)", manifest["sums"])
        first: str | None = None
        for number, (tool, out) in enumerate(outputs.items()):
            summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
            if summary["lines"] != manifest["profile"]["lines"] or summary["good"] != good:
                raise DifferentSumsError(f"{tool}: {summary['lines']} lines, {summary['good']} good; {good} are good")
            for table in ("clients", "usage"):
                connection.execute(f"create view {table}_{number} as {_select(out, table)}")
            _compare(connection, tool, "the log's own sums", f"clients_{number}", "claimed", "user, client_id, key")
            if first is None:
                first = tool
            else:
                cells = "cell_start_ms, user, client_id, key"
                _compare(connection, tool, first, f"usage_{number}", "usage_0", cells)


def _typed(*, with_cell: bool) -> str:
    text = "user VARCHAR, client_id VARCHAR, key VARCHAR, amount DOUBLE, requests BIGINT, throttled_requests BIGINT,"
    return ("cell_start_ms BIGINT, " if with_cell else "") + text + " throttle_ms BIGINT"


def _select(out: Path, table: str) -> str:
    """The rows of one table with the columns that all tools have, whoever wrote it."""
    keys = ", ".join(f"'{key}'" for key in KEYS)
    columns = ("cell_start_ms, " if table == "usage" else "") + _COLUMNS
    if (out / f"{table}.csv").exists():
        types = dict(column.split() for column in _typed(with_cell=table == "usage").split(", "))
        # An empty field is an empty name, not a null.
        form = "header = true, auto_detect = false, quote = '\"', escape = '\"', nullstr = 'null'"
        source = f"read_csv('{out}/{table}.csv', {form}, columns = {types})"
    elif (out / f"{table}.parquet").exists():
        source = f"read_parquet('{out}/{table}.parquet')"
    else:
        source = f"read_parquet('{out}/{table}/**/*.parquet', hive_partitioning = true)"
    return f"select {columns} from {source} where key in ({keys})"


def _compare(connection: duckdb.DuckDBPyConnection, tool: str, other: str, left: str, right: str, by: str) -> None:
    found = connection.execute(
        f"select {by}, a.amount, a.requests, a.throttled_requests, a.throttle_ms,"
        " b.amount, b.requests, b.throttled_requests, b.throttle_ms"
        f" from {left} a full join {right} b using ({by}) where {_DIFFERENT} limit 5"
    ).fetchall()
    if found:
        rows = "\n".join(str(row) for row in found)
        raise DifferentSumsError(f"{tool} and {other} differ in ({by}):\n{rows}")
