"""What is live after commits, and the commits themselves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kquota.pipeline.dataset.errors import DamagedFileError, WrongFormatError
from kquota.pipeline.dataset.manifest import (
    LIVE_EVERY,
    DataFile,
    Manifest,
    fold,
    manifest_path,
    newest_sequence,
    read_manifests,
)
from kquota.pipeline.dataset.summary import Summary
from kquota.pipeline.storage.opening import open_storage
from kquota.pipeline.storage.port import Storage


def write_manifest(storage: Storage, one: Manifest) -> None:
    storage.put_new(manifest_path(one.sequence), msgspec.json.encode(one))


def manifest(sequence: int, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Manifest:
    return Manifest(
        sequence=sequence,
        run="0123456789ab",
        step="ingest",
        kquota="1",
        committed_ms=0,
        add=[DataFile(path, 1, 1) for path in add],
        remove=list(remove),
        changed=["usage"],
        tables=["usage"],
        summary=Summary.empty(),
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Manifest], list[set[str]]]:
    """Commits that each add new files and remove some that are live, and what is live after each."""
    live: set[str] = set()
    manifests, states = [], []
    for number in range(1, draw(st.integers(1, 40)) + 1):
        remove = draw(st.sets(st.sampled_from(sorted(live)))) if live else set()
        add = {f"usage/{number}-{i}" for i in range(draw(st.integers(0, 3)))}
        live = (live - remove) | add
        manifests.append(manifest(number, sorted(add), sorted(remove)))
        states.append(live)
    return manifests, states


@given(histories())
def test_live_is_what_was_added_less_what_was_removed(history: tuple[list[Manifest], list[set[str]]]) -> None:
    manifests, states = history
    for count, state in enumerate(states, 1):
        assert fold({}, manifests[:count]).keys() == state


@given(histories(), st.data())
def test_what_is_live_is_the_same_in_whatever_parts_commits_are_read(
    history: tuple[list[Manifest], list[set[str]]], data: st.DataObject
) -> None:
    """Commits that list all of it may be among them, and what came before those need not be read."""
    manifests, states = history
    places = st.integers(0, len(manifests))
    listing = data.draw(st.sets(places))
    for place in sorted(listing - {len(manifests)}):
        manifests[place] = replace(manifests[place], live=list(fold({}, manifests[: place + 1]).values()))
    first = data.draw(st.sampled_from([0, *sorted(listing - {len(manifests)})]))
    cuts = [first, *sorted(cut for cut in data.draw(st.lists(places)) if cut > first), len(manifests)]
    live: dict[str, DataFile] = {}
    for begin, end in pairwise(cuts):
        live = fold(live, manifests[begin:end])
        assert live.keys() == states[end - 1]
    assert live == fold({}, manifests)


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    assert newest_sequence(storage) == 0
    files = [DataFile("usage/date=2026-01-05/a-b.parquet", 3, 99, first_ms=1, last_ms=2.5, broker_id=7)]
    written = replace(manifest(LIVE_EVERY), add=files, live=files)
    write_manifest(storage, written)
    assert newest_sequence(storage) == LIVE_EVERY
    assert read_manifests(storage, [LIVE_EVERY]) == [written]


def test_a_commit_has_one_manifest(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    write_manifest(storage, manifest(1, ["usage/a"]))
    with pytest.raises(FileExistsError):
        write_manifest(storage, manifest(1, ["usage/b"]))


def test_the_newest_is_found_beside_runs(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    for path in ("_runs/00000009.json", "_runs/00000010.json", "_runs/0123456789ab.running", "_runs/77.tmp/a/11.json"):
        storage.put(path, b"{}")
    assert newest_sequence(storage) == 10


@pytest.mark.parametrize(
    "content, found", [(b'{"format": 3, "sequence": "seventeen"}', 3), (b'{"kquota": "1"}', None), (b"{", None)]
)
def test_another_format_is_refused(tmp_path: Path, content: bytes, found: int | None) -> None:
    storage = open_storage(tmp_path)
    storage.put(manifest_path(1), content)
    with pytest.raises(WrongFormatError) as caught:
        read_manifests(storage, [1])
    assert (caught.value.url, caught.value.format) == (str(tmp_path), found)


def test_a_later_format_is_refused_though_its_fields_are_the_same(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    write_manifest(storage, manifest(1))
    content = storage.read(manifest_path(1))
    storage.put(manifest_path(1), content.replace(b'"format":2', b'"format":3'))
    with pytest.raises(WrongFormatError):
        read_manifests(storage, [1])


def test_a_manifest_that_somebody_deleted(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError) as caught:
        read_manifests(open_storage(tmp_path), [1])
    assert caught.value.path == manifest_path(1)


@pytest.mark.parametrize(
    "path, table, partition",
    [
        ("usage/date=2026-01-05/a-b.parquet", "usage", {"date": "2026-01-05"}),
        ("clients/a-b.parquet", "clients", {}),
        ("_quotas/a-b.json", "quotas", {}),
    ],
)
def test_a_path_says_what_a_file_is_of(path: str, table: str, partition: dict[str, str]) -> None:
    file = DataFile(path, 1, 1)
    assert (file.table, file.partition) == (table, partition)
