"""Numbers of identities are those of a plain look-up, however the strings are dictionary_codes."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.pipeline.limits import identities
from kquota.pipeline.limits.identities import IDENTITY, IdentityIds
from kquota.pipeline.spark.arrow import decode_dictionaries

NAMES = st.sampled_from([None, "", "a", "b", "ü", "a,b"])
ROWS = st.lists(st.tuples(*[NAMES] * len(IDENTITY)), max_size=30)


def batch(rows: list[tuple[str | None, ...]], *, dictionary_codes: bool) -> pa.RecordBatch:
    columns = [pa.array([row[place] for row in rows], pa.string()) for place in range(len(IDENTITY))]
    return pa.record_batch(
        [one.dictionary_encode() if dictionary_codes else one for one in columns], names=list(IDENTITY)
    )


@given(rows=ROWS, known=ROWS, dictionary_codes=st.booleans(), dense=st.sampled_from([1, 3, 100, 2**22]))
def test_each_row_has_the_number_of_its_identity(
    rows: list[tuple[str | None, ...]], known: list[tuple[str | None, ...]], dictionary_codes: bool, dense: int
) -> None:
    """Null is a name like any other, and no two identities meet, also where their codes are too many for a table."""
    numbers = {identity: number for number, identity in enumerate(dict.fromkeys(known))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identities, "_DENSE", dense)
        found = IdentityIds.of_mapping(numbers).of(batch(rows, dictionary_codes=dictionary_codes))
    assert found.tolist() == [numbers.get(row, -1) for row in rows]


@given(rows=ROWS)
def test_strings_become_plain(rows: list[tuple[str | None, ...]]) -> None:
    """Spark is handed strings, never dictionaries."""
    assert decode_dictionaries(batch(rows, dictionary_codes=True)).equals(
        pa.Table.from_batches([batch(rows, dictionary_codes=False)])
    )
