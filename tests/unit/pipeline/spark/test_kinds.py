"""Different tables are shuffled together, and told apart afterwards."""

import pyarrow as pa

from kquota.pipeline.spark.shuffle import from_blocks_by_kind, to_blocks, with_kind


def test_rows_of_each_kind_come_back_from_a_bucket() -> None:
    """Blocks of several workers; the kind itself is in no column, and in no file written of the rows."""
    cells = [pa.table({"second": [1, 2, 3], "user": ["a", None, "b"]}), pa.table({"second": [4], "user": ["a"]})]
    connections = pa.table({"ip": ["10.0.0.1", "10.0.0.2"]})
    parts = [*(with_kind(rows, "cells") for rows in cells), with_kind(connections, "connections")]
    blocks = [
        block.as_buffer()
        for rows in parts
        for batch in [to_blocks(rows, pa.array([7] * rows.num_rows).to_numpy())]
        for block in batch.column("block")
    ]
    found = from_blocks_by_kind(blocks)
    assert found == {"cells": pa.concat_tables(cells), "connections": connections}
    assert all(rows.schema.metadata is None for rows in found.values())
