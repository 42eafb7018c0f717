"""The baseline of a good SQL engine: DuckDB reads Kafka's JSON request log and writes the sums of `kquota analyze`.

The same sums and exact sizes as `baseline_json`, in the fastest form that was found (README.md names those that were
tried): lines by the CSV reader, cut by position, decoded once into a narrow struct, one aggregation to cells. A line
that does not decode is null and counted, it does not end the query.

Usage: ``python -m benchmarks.baseline_duckdb OUT FILE...``

OUT receives ``clients.parquet``, ``usage.parquet`` and ``summary.json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import duckdb

__all__ = ["run"]

THREADS: Final = 2
LONGEST_LINE_BYTES: Final = 16 * 1024 * 1024

_PARTITION: Final = {"recordsSizeInBytes": "BIGINT"}
_SHAPE: Final = {
    "isForwarded": "BOOLEAN",
    "requestHeader": {"requestApiKey": "INTEGER", "clientId": "VARCHAR"},
    "request": {
        "acks": "INTEGER",
        "transactionalId": "VARCHAR",
        "replicaId": "INTEGER",
        "replicaState": {"replicaId": "INTEGER"},
        "topicData": [{"name": "VARCHAR", "partitionData": [_PARTITION]}],
    },
    "response": {
        "throttleTimeMs": "BIGINT",
        "topics": [{"numPartitions": "INTEGER"}],
        "responses": [
            {"topic": "VARCHAR", "partitions": [{**_PARTITION, "abortedTransactions": [{"producerId": "BIGINT"}]}]}
        ],
    },
    "localTimeMs": "DOUBLE",
    "responseQueueTimeMs": "DOUBLE",
    "sendTimeMs": "DOUBLE",
    "throttleTimeMs": "BIGINT",
    "principal": "VARCHAR",
}


def _uvarint(value: str) -> str:
    """Bytes of an unsigned varint of at most 28 bits."""
    return f"(1 + ({value} > 127)::INT + ({value} > 16383)::INT + ({value} > 2097151)::INT)"


def _compact(size: str) -> str:
    """Bytes of a compact string or compact bytes of `size` bytes; null takes one byte."""
    return f"coalesce({_uvarint(f'{size} + 1')} + {size}, 1)"


def _total(items: str, name: str, each: str) -> str:
    return f"{_uvarint(f'len({items}) + 1')} + coalesce(list_sum(list_transform({items}, lambda {name}: {each})), 0)"


_PRODUCE_BYTES: Final = (
    "2 + 2 + 4 + 2 + coalesce(strlen(s.requestHeader.clientId), 0) + 1"
    f" + {_compact('strlen(s.request.transactionalId)')} + 2 + 4 + 1 + "
    + _total(
        "s.request.topicData",
        "t",
        f"if(t.name is null, 16, {_compact('strlen(t.name)')}) + 1 + "
        + _total("t.partitionData", "p", f"4 + {_compact('p.recordsSizeInBytes')} + 1"),
    )
)
_FETCH_BYTES: Final = "4 + 4 + 2 + 4 + 1 + " + _total(
    "s.response.responses",
    "t",
    f"if(t.topic is null, 16, {_compact('strlen(t.topic)')}) + 1 + "
    + _total(
        "t.partitions",
        "p",
        "4 + 2 + 8 + 8 + 8 + 4 + 1"
        f" + coalesce({_uvarint('len(p.abortedTransactions) + 1')} + 17 * len(p.abortedTransactions), 1)"
        f" + {_compact('p.recordsSizeInBytes')}",
    ),
)

# One group for each (second, client, kind); kinds: see _KEYS, 'none' = not charged to a client, 'rejected' = bad line.
_CELLS: Final = f"""
create temp table cells as
with lines as (
    select column0 as l from read_csv($files, columns = {{'column0': 'VARCHAR'}}, header = false, auto_detect = false,
        delim = chr(1), quote = '', escape = '', new_line = '\\n', strict_mode = false, store_rejects = true,
        max_line_size = {LONGEST_LINE_BYTES})
), decoded as (
    select l[2:20] as written, l[22:24] as written_ms, try(from_json(l[51:-24], '{json.dumps(_SHAPE)}')) as s from lines
), counted as (
    select floor((epoch_ms(try_cast(written as timestamp)) + try_cast(written_ms as int)
            - s.sendTimeMs - s.responseQueueTimeMs) / 1000)::BIGINT as second, s,
        case when s.requestHeader.requestApiKey is null or s.localTimeMs is null or s.principal is null
                  or s.throttleTimeMs is null or second is null then 'rejected'
             when s.isForwarded or s.request.replicaId >= 0 or s.request.replicaState.replicaId >= 0 then 'none'
             when s.requestHeader.requestApiKey = 0 then 'produce'
             when s.requestHeader.requestApiKey = 1 then 'fetch'
             when s.requestHeader.requestApiKey in (19, 20, 37) then 'mutation'
             else 'other' end as kind,
        if(kind = 'mutation', s.response.throttleTimeMs, s.throttleTimeMs) as throttle_ms
    from decoded
)
select second, s.principal as principal, coalesce(s.requestHeader.clientId, '') as client_id, kind,
    sum(case kind
        when 'produce' then {_PRODUCE_BYTES}
        when 'fetch' then if(throttle_ms > 0, 0, {_FETCH_BYTES})
        when 'mutation' then list_sum(list_transform(s.response.topics, lambda t: greatest(t.numPartitions, 0)))
        end) as amount,
    count(*) as requests,
    count(*) filter (throttle_ms > 0) as throttled_requests,
    coalesce(sum(throttle_ms) filter (throttle_ms > 0), 0) as throttle_ms,
    sum(s.localTimeMs) filter (kind <> 'produce' or s.request.acks <> 0) / 10 as percent_seconds,
    count(*) filter (kind <> 'produce' or s.request.acks <> 0) as timed_requests
from counted group by all
"""

_USAGE: Final = """
create temp table usage as
select second * 1000 as cell_start_ms, substr(principal, instr(principal, ':') + 1) as user, client_id,
    case kind when 'produce' then 'producer_byte_rate' when 'fetch' then 'consumer_byte_rate'
        else 'controller_mutation_rate' end as key,
    amount::DOUBLE as amount, requests, throttled_requests, throttle_ms
from cells where kind in ('produce', 'fetch', 'mutation')
union all
select second * 1000, substr(principal, instr(principal, ':') + 1), client_id, 'request_percentage',
    sum(percent_seconds), sum(timed_requests),
    coalesce(sum(throttled_requests) filter (kind = 'other'), 0), coalesce(sum(throttle_ms) filter (kind = 'other'), 0)
from cells where kind in ('produce', 'fetch', 'mutation', 'other') and timed_requests > 0
group by second, principal, client_id
"""

_CLIENTS: Final = """
select user, client_id, key, sum(amount) as amount, sum(requests)::BIGINT as requests,
    sum(throttled_requests)::BIGINT as throttled_requests, sum(throttle_ms)::BIGINT as throttle_ms
from usage group by all
"""

# Lines that are not UTF-8 never reach the query: the CSV reader keeps them aside.
_COUNTS: Final = """
with unreadable as (select count(distinct (file_id, line)) as lines from reject_errors)
select coalesce(sum(requests), 0)::BIGINT + any_value(u.lines),
    coalesce(sum(requests) filter (kind = 'rejected'), 0)::BIGINT + any_value(u.lines)
from unreadable u left join cells on true
"""


def run(out: Path, files: Sequence[Path]) -> dict[str, int]:
    """Write cells and sums below `out`; returns how many lines were read, good and rejected."""
    out.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as connection:
        connection.execute(f"set threads = {THREADS}")
        connection.execute("set preserve_insertion_order = false")
        connection.execute(_CELLS, {"files": [str(file) for file in files]})
        connection.execute(_USAGE)
        connection.execute(f"copy (select * from usage) to '{out / 'usage.parquet'}' (format parquet)")
        connection.execute(f"copy ({_CLIENTS}) to '{out / 'clients.parquet'}' (format parquet)")
        lines, rejected = connection.execute(_COUNTS).fetchall()[0]
    counts = {"lines": lines, "good": lines - rejected, "rejected": rejected}
    (out / "summary.json").write_text(json.dumps(counts) + "\n", encoding="utf-8")
    return counts


def main() -> int:
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    run(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
    return 0


if __name__ == "__main__":
    sys.exit(main())
