"""Rows of `usage` from what workers gathered: merged cells, first sights of connections, and what mutations cost."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kquota.pipeline.ingest.chunks import CONNECTIONS_SCHEMA, MUTATIONS_SCHEMA
from kquota.pipeline.ingest.request_log.cells import EDGE_SCHEMA, USAGE_SCHEMA
from kquota.pipeline.ingest.request_log.usage_rows import (
    CELL_SCHEMA,
    charge_mutations,
    connection_usage,
    merge_cells,
    mutation_costs,
    mutation_usage,
    to_mergeable,
)
from kquota.pipeline.spark.shuffle import from_blocks, to_blocks


def cell(**changes: Any) -> dict[str, Any]:
    row = {
        "cluster": "c",
        "broker_id": 1,
        "cell_start_ms": 7_000,
        "cell_ms": 1000,
        "source": "request-log",
        "grain": "client",
        "user": "alice",
        "client_id": "etl",
        "ip": None,
        "key": "producer_byte_rate",
        "amount": 1.0,
        "amount_max": 1.0,
        "requests": 1,
        "throttled_requests": 0,
        "throttle_ms": 0,
        "throttle_max_ms": 0,
        "unknown_amounts": 0,
    }
    return row | changes


def test_rows_of_one_cell_are_added_up() -> None:
    """Sums, largest values, and connections that several chunks saw counted once."""
    edges = [
        cell(connection_id=5, amount=2.0, amount_max=2.0, throttle_ms=30, throttle_max_ms=30, throttled_requests=1),
        cell(connection_id=5, amount=None, amount_max=None, unknown_amounts=1),
        cell(connection_id=-6, amount=4.0, amount_max=3.0, requests=2, throttle_ms=9, throttle_max_ms=9),
        cell(connection_id=5, client_id="", amount=None, amount_max=None, unknown_amounts=1),
    ]
    whole = [cell(connections=1, amount=8.0, amount_max=8.0)]
    rows = [
        to_mergeable(pa.Table.from_pylist(edges, EDGE_SCHEMA)),
        to_mergeable(pa.Table.from_pylist(whole, USAGE_SCHEMA)),
    ]
    merged = merge_cells(pa.concat_tables(rows))
    assert merged.schema == USAGE_SCHEMA
    assert sorted(merged.to_pylist(), key=lambda row: -int(row["requests"])) == [
        cell(
            amount=14.0,
            amount_max=8.0,
            requests=5,
            throttled_requests=1,
            throttle_ms=39,
            throttle_max_ms=30,
            unknown_amounts=1,
            connections=2,
        ),
        cell(client_id="", amount=None, amount_max=None, unknown_amounts=1, connections=1),
    ]


def test_a_connection_counts_where_it_was_first_seen() -> None:
    """Once per broker, in its first second, on its ip; one without an ip does not count."""
    rows = [
        (1, "a", "10.0.0.1", 9),
        (1, "a", "10.0.0.1", 7),
        (1, "b", "10.0.0.1", 7),
        (2, "a", "10.0.0.1", 8),
        (1, "d", "10.0.0.2", 7),
        (1, "e", None, 7),
    ]
    named = [dict(zip(CONNECTIONS_SCHEMA.names, row, strict=True)) for row in rows]
    usage = connection_usage(pa.Table.from_pylist(named, CONNECTIONS_SCHEMA), cluster="c")
    assert usage.schema == USAGE_SCHEMA
    found = [(row["broker_id"], row["ip"], row["cell_start_ms"], row["amount"]) for row in usage.to_pylist()]
    assert sorted(found) == [
        (1, "10.0.0.1", 7_000, 2.0),
        (1, "10.0.0.2", 7_000, 1.0),
        (2, "10.0.0.1", 8_000, 1.0),
    ]
    for row in usage.to_pylist():
        assert (row["user"], row["client_id"], row["grain"]) == (None, None, "meter")
        assert row["connections"] == row["requests"] == row["amount"]


def mutation(
    seq: int, topic: str | None, operation: str, partitions: int | None, *, validate_only: bool = False
) -> dict[str, Any]:
    return {
        "cluster": "",
        "broker_id": 0,
        "connection": f"c{seq}",
        "seq": seq,
        "end_ms": 1_800_000_000_000.0 + seq,
        "record_ms": 1_800_000_000_000.0 + seq,
        "api_key": 19,
        "api_version": 7,
        "user": "alice",
        "client_id": "",
        "local_ms": 1.0,
        "remote_ms": 1.0,
        "throttle_ms": 100 if operation == "none" else 0,
        "listener": "L",
        "topic": topic,
        "operation": operation,
        "partitions": partitions,
        "validate_only": validate_only,
    }


def charged(rows: list[dict[str, Any]], topics: dict[str, int]) -> pa.Table:
    return charge_mutations(mutation_costs(pa.Table.from_pylist(rows, MUTATIONS_SCHEMA), topics))


def test_mutations_cost_partitions() -> None:
    """Creating costs all partitions, growing those added, deleting those there are; unknown counts are unknown."""
    rows = [
        mutation(11, "b", "delete", None),
        mutation(1, "a", "create", 4),
        mutation(1, "b", "create", 6),
        mutation(2, "a", "grow", 10),
        mutation(3, "a", "grow", 50, validate_only=True),
        mutation(4, "a", "delete", None),
        mutation(5, "a", "create", 3),
        mutation(6, "a", "delete", None),
        mutation(7, "old", "delete", None),
        mutation(8, "given", "delete", None),
        mutation(9, "b", "none", 6),
        mutation(10, None, "none", None),
        mutation(11, "old2", "delete", None),
    ]
    requests = charged(rows, {"given": 7, "a": 99})
    assert dict(zip(requests["seq"].to_pylist(), requests["amount"].to_pylist(), strict=True)) == {
        1: 10.0,
        2: 6.0,
        3: 40.0,
        4: 10.0,
        5: 3.0,
        6: 3.0,
        7: None,
        8: 7.0,
        9: 0.0,
        10: 0.0,
        11: None,
    }
    [usage] = mutation_usage(requests).to_pylist()
    assert {name: usage[name] for name in ("amount", "amount_max", "requests", "connections")} == {
        "amount": 79.0,
        "amount_max": 40.0,
        "requests": 11,
        "connections": 11,
    }
    assert (usage["throttled_requests"], usage["throttle_ms"], usage["throttle_max_ms"]) == (2, 200, 100)
    assert (usage["user"], usage["client_id"], usage["ip"]) == ("alice", "", None)


def test_without_rows_there_is_nothing() -> None:
    """Nothing in, nothing out, with the columns of every other answer."""
    requests = charged([], {})
    assert requests.num_rows == 0
    assert mutation_usage(requests).schema == merge_cells(CELL_SCHEMA.empty_table()).schema == USAGE_SCHEMA
    assert connection_usage(CONNECTIONS_SCHEMA.empty_table(), cluster="c").schema == USAGE_SCHEMA


@given(st.lists(st.tuples(st.integers(0, 300), st.one_of(st.none(), st.text(max_size=3))), max_size=40))
def test_blocks_hold_all_rows_of_their_bucket(rows: list[tuple[int, str | None]]) -> None:
    """What is dealt into blocks by bucket comes back, each bucket's rows together and in order."""
    numbers = pa.array([number for number, _ in rows], pa.int64())
    table = pa.table({"bucket": numbers, "text": pa.array([text for _, text in rows], pa.string())})
    blocks = to_blocks(table, table["bucket"].to_numpy())
    assert blocks.column("bucket").to_pylist() == sorted({number for number, _ in rows})
    for bucket, block in zip(blocks.column("bucket").to_pylist(), blocks.column("block"), strict=True):
        back = from_blocks([block.as_buffer()])
        assert back["text"].to_pylist() == [text for number, text in rows if number == bucket]
        assert set(back["bucket"].to_pylist()) == {bucket}
