"""Whether two programs wrote the same table: integers, texts and lists exactly, doubles to 1e-9 of the value.

What is null in one has to be null in the other. Rows are matched by their keys, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import duckdb

from benchmarks.sums import DifferentSumsError

__all__ = ["RELATIVE", "check_same_table"]

RELATIVE: Final = 1e-9


def check_same_table(ours: Path, theirs: Path, keys: Sequence[str]) -> int:
    """Compare two folders of Parquet files; returns how many rows each has.

    :param keys: columns that no two rows have the same of.
    :raises DifferentSumsError: they differ in columns, rows or values, or one has no rows or one row twice.
    """
    files = {"ours": f"{ours}/**/*.parquet", "theirs": f"{theirs}/**/*.parquet"}
    columns = _columns(files["ours"])
    if columns != _columns(files["theirs"]):
        raise DifferentSumsError(f"{ours} and {theirs} do not have the same columns")
    differs = " or ".join(_differs(name, kind) for name, kind in columns.items() if name not in keys)
    both = (
        "from read_parquet($ours) a full join read_parquet($theirs) b on "
        + " and ".join(f'a."{name}" is not distinct from b."{name}"' for name in keys)
    )  # fmt: skip
    missing = f'a."{keys[0]}" is null or b."{keys[0]}" is null'
    place = ", ".join(f'coalesce(a."{name}", b."{name}")' for name in keys)
    wrong = duckdb.execute(
        f"select {place}, count(*) over () {both} where {missing} or {differs} limit 1", files
    ).fetchone()
    if wrong is not None:
        raise DifferentSumsError(f"{wrong[-1]} rows differ between {ours} and {theirs}, such as {wrong[:-1]}")
    rows = [
        duckdb.execute(f"select count(*), count(distinct ({', '.join(keys)})) from read_parquet($1)", [name]).fetchone()
        for name in files.values()
    ]
    counted, distinct = rows[0] or (0, 0)
    if not counted or rows[0] != rows[1] or counted != distinct:
        raise DifferentSumsError(f"{ours} and {theirs} have rows twice, or none: {rows}")
    return int(counted)


def _columns(files: str) -> dict[str, str]:
    described = duckdb.execute("describe select * from read_parquet($1)", [files]).fetchall()
    return {name: kind for name, kind, *_ in sorted(described)}


def _differs(name: str, kind: str) -> str:
    """A condition on rows `a` and `b`."""
    if kind != "DOUBLE":
        return f'a."{name}" is distinct from b."{name}"'
    # Infinite ones are no further apart than nothing where they are the same.
    is_close = f'abs(a."{name}" - b."{name}") <= {RELATIVE} * greatest(abs(a."{name}"), abs(b."{name}"))'
    return f'(a."{name}" is distinct from b."{name}" and not coalesce({is_close}, false))'
