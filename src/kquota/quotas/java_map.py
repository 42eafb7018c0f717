"""The iteration order of ``java.util.HashMap``.

Kafka validates the parts of an entity, and the keys of an alteration, in the order in which a ``HashMap`` yields them,
and prints entities in that order. To report the same error as a broker one has to walk in the same order.
"""

from collections.abc import Iterable
from functools import lru_cache
from operator import mul
from struct import Struct
from typing import Final

__all__ = ["hash_map_order", "string_hash_code"]

_MASK: Final = 0xFFFFFFFF


_USUAL_LENGTH: Final = 64
_STEP: Final = 256
_POWERS: Final = tuple(pow(31, _STEP - 1 - place, 1 << 32) for place in range(_STEP))
_SHIFT: Final = pow(31, _STEP, 1 << 32)


def string_hash_code(text: str) -> int:
    """``java.lang.String.hashCode`` as an unsigned 32-bit number: over UTF-16 code units, wrapping."""
    # The same few types and keys come over and over; what is longer is a client's own, and nothing to keep.
    return _known_hash_code(text) if len(text) <= _USUAL_LENGTH else _hash_code(text)


def _hash_code(text: str) -> int:
    """Some hundred units at a time: the sum of each times its power of 31."""
    raw = text.encode("utf-16-be", "surrogatepass")
    units: tuple[int, ...] = Struct(f">{len(raw) // 2}H").unpack(raw)
    first = len(units) % _STEP
    code: int = sum(map(mul, units[:first], _POWERS[_STEP - first :]))
    for start in range(first, len(units), _STEP):
        code = (code * _SHIFT + sum(map(mul, units[start : start + _STEP], _POWERS))) & _MASK
    return code & _MASK


_known_hash_code: Final = lru_cache(maxsize=1024)(_hash_code)


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
