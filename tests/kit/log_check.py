"""What was acknowledged, held against what is in the log: lost, moved, duplicated, reordered, corrupted. Pure.

Both come as `Line`: what a client program of `tests.real.clients` wrote, and what one trusted reader found in the
topic afterwards, each partition from its start.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Self

from kquota.errors import InputError

ABORTED: Final = "aborted"
COMMITTED: Final = "committed"
UNKNOWN: Final = "unknown"
_STATES: Final = (ABORTED, COMMITTED, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Line:
    """A record that was acknowledged or read.

    ``key`` is ``producer:sequence``, or ``-`` for a record of other programs. The offset is -1 where the client was
    not told one. ``checksum`` begins with ``wrong-`` where the record does not carry the checksum of its payload.
    ``state`` and ``transaction`` are those of the record's transaction, "" and -1 where there is none.
    """

    partition: int
    offset: int
    key: str
    checksum: str
    state: str = ""
    transaction: int = -1

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises InputError."""
        match text.split():
            case [partition, offset, key, checksum]:
                return cls(int(partition), int(offset), key, checksum)
            case [partition, offset, key, checksum, state, transaction] if state in _STATES:
                return cls(int(partition), int(offset), key, checksum, state, int(transaction))
        raise InputError(f"not a line of a client program: {text!r}")

    @property
    def producer(self) -> str:
        """Empty for records of other programs."""
        return self.key.rpartition(":")[0]

    @property
    def sequence(self) -> int:
        return int(self.key.rpartition(":")[2])


def read_lines(path: Path) -> list[Line]:
    """The lines of a program's output; one that was cut off by a kill is left out. Raises InputError."""
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    return [Line.parse(text) for text in whole.splitlines()]


@dataclass(frozen=True, slots=True)
class Findings:
    """What is wrong, as the lines it was seen at, and what is merely so."""

    lost: Sequence[Line]  # acknowledged (or committed), and nowhere in the log
    moved: Sequence[Line]  # acknowledged at another place than where it is
    duplicated: Sequence[Line]  # in the log once more than once
    reordered: Sequence[Line]  # in the log after a later one of its producer
    corrupted: Sequence[Line]  # in the log with another payload than was sent
    aborted: Sequence[Line]  # of an aborted transaction, and in the log all the same
    torn: Sequence[Line]  # in the log, and of a transaction of unknown end that is there in part only
    unacknowledged: Sequence[Line]  # in the log, and acknowledged by nobody: allowed

    def problems(self, *, duplicates: int | None = 0) -> list[str]:
        """A sentence for each kind of what is wrong; ``duplicates``: how many are allowed (None: any number).

        A producer without idempotence also reorders where it retries, so with ``duplicates`` other than 0 what is
        reordered is not counted as wrong either.
        """
        wrong = []
        for kind in fields(self):
            lines: Sequence[Line] = getattr(self, kind.name)
            allowed: int | None = 0
            if kind.name == "unacknowledged" or (kind.name == "reordered" and duplicates != 0):
                allowed = None
            elif kind.name == "duplicated":
                allowed = duplicates
            if allowed is not None and len(lines) > allowed:
                wrong.append(f"{len(lines)} {kind.name}, such as {', '.join(map(_text, lines[:3]))}")
        return wrong


def check(acknowledged: Iterable[Line], log: Iterable[Line]) -> Findings:
    """``log`` holds each partition in the order of its offsets, as a reader of committed records sees it."""
    claimed = list(acknowledged)
    found = list(log)
    sent = {line.key: line for line in claimed}
    places: dict[str, set[tuple[int, int]]] = defaultdict(set)
    last: dict[tuple[int, str], int] = {}
    duplicated, reordered, corrupted = [], [], []
    for line in found:
        if not line.producer:
            continue
        if line.checksum.startswith("wrong-") or (line.key in sent and line.checksum != sent[line.key].checksum):
            corrupted.append(line)
        stream = (line.partition, line.producer)
        if line.key in places:
            duplicated.append(line)
        elif line.sequence < last.get(stream, -1):
            reordered.append(line)
        last[stream] = max(line.sequence, last.get(stream, -1))
        places[line.key].add((line.partition, line.offset))
    due = [line for line in claimed if line.state in ("", COMMITTED)]
    return Findings(
        lost=[line for line in due if line.key not in places],
        moved=[line for line in due if line.key in places and not _is_at(line, places[line.key])],
        duplicated=duplicated,
        reordered=reordered,
        corrupted=corrupted,
        aborted=[line for line in found if line.key in sent and sent[line.key].state == ABORTED],
        torn=list(_torn(claimed, places)),
        unacknowledged=[line for line in found if line.producer and line.key not in sent],
    )


def _is_at(line: Line, places: set[tuple[int, int]]) -> bool:
    if line.offset < 0:
        return any(partition == line.partition for partition, _ in places)
    return (line.partition, line.offset) in places


def _torn(claimed: Iterable[Line], places: Mapping[str, object]) -> Iterator[Line]:
    unknown: dict[tuple[str, int], list[Line]] = defaultdict(list)
    for line in claimed:
        if line.state == UNKNOWN:
            unknown[line.producer, line.transaction].append(line)
    for lines in unknown.values():
        there = [line for line in lines if line.key in places]
        if len(there) < len(lines):
            yield from there


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    records: int
    first: int  # offset
    last: int  # offset
    checksum: int
    """CRC-32 over the offsets, keys and checksums of the records in their order."""


def summary(lines: Iterable[Line]) -> dict[int, PartitionSummary]:
    """By partition. Two readers saw the same in the same order where this is equal."""
    of_partition: dict[int, PartitionSummary] = {}
    for line in lines:
        before = of_partition.get(line.partition, PartitionSummary(0, line.offset, -1, 0))
        text = f"{line.offset} {line.key} {line.checksum}\n".encode()
        of_partition[line.partition] = PartitionSummary(
            before.records + 1, before.first, line.offset, zlib.crc32(text, before.checksum)
        )
    return dict(sorted(of_partition.items()))


def without_repetitions(lines: Iterable[Line]) -> list[Line]:
    """In the order of partitions and offsets, each once: members of a group may read again after a rebalance."""
    return sorted(set(lines), key=lambda line: (line.partition, line.offset))


def _text(line: Line) -> str:
    return f"{line.key} at {line.partition}/{line.offset}"
