"""Values that functions on Spark's workers need: in any session, also where there is no context to broadcast them."""

from __future__ import annotations

import pickle
from hashlib import blake2b
from typing import Any, Final, Generic, TypeVar

__all__ = ["Shared"]

_T = TypeVar("_T")

_AT_HAND: Final = 4
_values: dict[bytes, Any] = {}
"""Of this process, by digest; the latest at the end."""


class Shared(Generic[_T]):
    """A value that goes with the function that uses it; a worker process unpickles it once, not for each task.

    Spark itself broadcasts functions of more than a megabyte, where it can.
    """

    def __init__(self, value: _T) -> None:
        self._pickled = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        self._digest = blake2b(self._pickled, digest_size=16).digest()

    @property
    def value(self) -> _T:
        """The value, the same object each time."""
        if self._digest not in _values:
            while len(_values) >= _AT_HAND:
                del _values[next(iter(_values))]
            _values[self._digest] = pickle.loads(self._pickled)  # noqa: S301 - what this very program pickled
        value: _T = _values[self._digest]
        return value
