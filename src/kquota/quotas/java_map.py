"""The iteration order of ``java.util.HashMap``.

Kafka validates the parts of an entity, and the keys of an alteration, in the order in which a ``HashMap`` yields them,
and prints entities in that order. To report the same error as a broker one has to walk in the same order.
"""

from collections.abc import Iterable
from functools import lru_cache

__all__ = ["hash_map_order", "string_hash_code"]

_MASK = 0xFFFFFFFF


@lru_cache(maxsize=1024)  # the same few types and keys, over and over
def string_hash_code(text: str) -> int:
    """``java.lang.String.hashCode`` as an unsigned 32-bit number: over UTF-16 code units, wrapping."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        code = (31 * code + (units[i] << 8 | units[i + 1])) & _MASK
    return code


def hash_map_order(keys: Iterable[str], *, made_for: int = 0) -> list[str]:
    """``keys`` (distinct) in the order of ``new HashMap<>(keys.size())`` after they were put in one by one.

    ``made_for`` is the number that the map was made for, if that is more. The table starts at the next power of two
    and doubles whenever more than three quarters are used. Inside one bucket the order of insertion is kept, also when
    the table grows. (Buckets of eight and more turn into trees in Java; they are not modelled.)
    """
    inserted = list(keys)
    count = len(inserted)
    if count < 2:
        return inserted
    capacity, room = 1, max(count, made_for)
    while capacity < room:
        capacity *= 2
    while count > capacity * 3 // 4:
        capacity *= 2

    def bucket(key: str) -> int:
        code = string_hash_code(key)
        return (code ^ code >> 16) & (capacity - 1)

    return sorted(inserted, key=bucket)
