"""Logs that were given twice under different names: copies, also copies made before the log was complete.

Files with the same first line are compared by digests of their whole content, decompressed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b

from msgspec import Struct

from kquota.errors import InputError
from kquota.pipeline.dataset.summary import DuplicateLogFile
from kquota.pipeline.ingest.decompression import BrokenFileError
from kquota.pipeline.ingest.request_log.log_files import LogFile, read_chunks
from kquota.pipeline.storage.files import StoredFile

__all__ = ["Comparison", "Digests", "digests_of", "find_duplicate_logs"]


class Comparison(Struct, frozen=True):
    """A file to be compared; `lengths` in bytes, ascending: how much of its content to digest."""

    stored: StoredFile
    compressed: bool
    lengths: tuple[int, ...] = ()


class Digests(Struct, frozen=True):
    """The length of a file's content in bytes, and digests of its first bytes by length."""

    length: int
    by_length: dict[int, str]


def digests_of(file: Comparison) -> Digests:
    """Digest a file at all of its lengths, and as a whole. A damaged file ends where it can no longer be read."""
    digest = blake2b(digest_size=32)
    ahead = [*file.lengths, -1]
    found: dict[int, str] = {}
    length = 0
    with suppress(BrokenFileError):
        for chunk in read_chunks(file.stored, compressed=file.compressed):
            rest = memoryview(chunk)
            while length + len(rest) >= ahead[0] > 0:
                part, rest = rest[: ahead[0] - length], rest[ahead[0] - length :]
                digest.update(part)
                length = ahead.pop(0)
                found[length] = digest.hexdigest()
            digest.update(rest)
            length += len(rest)
    return Digests(length, found | {length: digest.hexdigest()})


def find_duplicate_logs(
    files: Sequence[LogFile], compared: Callable[[Sequence[Comparison]], Sequence[Digests]]
) -> dict[int, DuplicateLogFile]:
    """By index the files that are the beginning, or all, of another one. Of equal files a plain one is read.

    :param compared: runs :func:`digests_of` for each; only files with the first line of another are compared.
    :raises InputError: such files are given as those of different brokers.
    """
    alike: dict[bytes, list[int]] = defaultdict(list)
    for place, file in enumerate(files):
        if file.size_bytes:
            alike[file.first_line].append(place)
    places = [place for group in alike.values() if len(group) > 1 for place in group]
    if not places:
        return {}
    packed = [place for place in places if files[place].compressed]
    lengths = {place: files[place].size_bytes for place in places}
    unpacked = compared([Comparison(files[place].stored, compressed=True) for place in packed]) if packed else ()
    lengths |= {place: one.length for place, one in zip(packed, unpacked, strict=True)}
    comparisons = []
    for place in places:
        group = alike[files[place].first_line]
        those = tuple(sorted({lengths[one] for one in group if 0 < lengths[one] <= lengths[place]}))
        comparisons.append(Comparison(files[place].stored, files[place].compressed, those))
    digests = dict(zip(places, compared(comparisons), strict=True))

    def rank(place: int) -> tuple[int, bool, int]:
        """The one to be read comes first."""
        return -digests[place].length, files[place].compressed, place

    duplicates: dict[int, DuplicateLogFile] = {}
    for place in places:
        length = digests[place].length
        own = digests[place].by_length[length]
        others = alike[files[place].first_line]
        same = [one for one in others if length and digests[one].by_length.get(length) == own]
        whole = min(same, key=rank, default=place)
        if whole == place:
            continue
        file, other = files[place], files[whole]
        if file.broker_id != other.broker_id:
            raise InputError(
                f"{file.path} is given as a log of broker {file.broker_id}, and all of it is in {other.path}, "
                f"which is given as one of broker {other.broker_id}: give each log once, with its broker"
            )
        duplicates[place] = DuplicateLogFile(file.path, other.path)
    return duplicates
