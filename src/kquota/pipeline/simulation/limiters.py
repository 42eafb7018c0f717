"""What simulated requests are charged to: the limit of one meter, or here as a port whatever else limits clients.

The meters are those of :mod:`kquota.metering`, and :func:`kquota.metering.requests.charge` says what a request is
charged and when it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isinf
from typing import Final, NamedTuple, Protocol

import numpy as np

from kquota.metering.callback import ClientQuotaType
from kquota.metering.meters import BucketMeter, Meter, RateMeter
from kquota.metering.requests import charge
from kquota.metering.statistics import Windows
from kquota.pipeline.simulation.arrivals import ENVELOPE_BYTES

__all__ = ["Charged", "Connection", "Limiter", "MeterLimiter", "charge_meter"]


class Connection(NamedTuple):
    """The requests of one connection that count on one key, in the order of their times."""

    at_ms: Sequence[float]
    """Since the epoch."""
    amounts: Sequence[float]
    is_strict: bool = True
    """Whether its mutations are refused, or done and made to wait for: the version of its requests."""
    largest: float | None = None
    """The largest of its requests, to which what has queued up is joined; None: the largest of `amounts`."""
    client: tuple[str, str] = ("", "")
    """User and client id, where the limiter asks for them."""


class Charged(NamedTuple):
    """What comes of charging a request."""

    throttle_ms: int
    accepted: bool
    """False: a mutation was refused, or a fetch answered empty, and its client sends it again."""
    level: float
    """What the limit was compared with, by the limit."""


class Limiter(Protocol):
    """Charges requests that count on one key, each to the meter of its connection."""

    envelope: float | None
    """What requests need once that go out joined, as those with records do; None: they do not."""

    def largest(self, connection: Connection) -> float:
        """More than this much does not go into one request, whatever its client asks for."""

    def charge(self, connection: Connection, amount: float, now_ms: int) -> Charged:
        """Charge a request; times do not decrease from call to call."""

    def meter_of(self, connection: Connection) -> tuple[str, float | None]:
        """Name and limit of the meter that the connection is charged to now; '' and None where it is to none."""

    def is_far_above(self, connections: Sequence[Connection]) -> bool:
        """Whether all of them are charged to one meter, and come nowhere near its limit: nothing is to be simulated."""


class MeterLimiter:
    """The limit of one meter that all connections are charged to, as Kafka does for clients of one quota."""

    def __init__(self, key: str, limit: float | None, windows: Windows, *, meter: str = "") -> None:
        """Take a limit; None or an infinite one is none.

        :param windows: of byte rates and request time, or of mutations, by the key.
        :param meter: its name.
        """
        self.envelope = ENVELOPE_BYTES.get(key)
        self._quota_type = ClientQuotaType.of_key(key)
        self._name = meter
        self._limit = None if limit is None or isinf(limit) else limit
        self._windows = windows
        self._meter: Meter | None = None
        self._largest = inf
        if self._limit is None:
            return
        if self._quota_type is ClientQuotaType.CONTROLLER_MUTATION:
            self._meter = BucketMeter({}, self._limit, windows)
            return
        longest_ms = windows.size_ms if self._quota_type is ClientQuotaType.REQUEST else None
        self._meter = RateMeter({}, self._limit, windows, longest_ms)
        if self._quota_type is ClientQuotaType.FETCH:
            # No answer is larger than what a whole window lets pass.
            self._largest = windows.max_value(self._limit) or inf

    def largest(self, connection: Connection) -> float:
        del connection
        return self._largest

    def charge(self, connection: Connection, amount: float, now_ms: int) -> Charged:
        return charge_meter(self._meter, self._quota_type, connection, amount, now_ms)

    def meter_of(self, connection: Connection) -> tuple[str, float | None]:
        del connection
        return self._name, self._limit

    def is_far_above(self, connections: Sequence[Connection]) -> bool:
        """No sum over all windows and one more, which is all that a sample can be part of, is near the limit."""
        if self._limit is None:
            return True
        windows = self._windows
        at_ms = np.concatenate([one.at_ms for one in connections])
        order = np.argsort(at_ms, kind="stable")
        at_ms = at_ms[order]
        so_far = np.concatenate([[0.0], np.cumsum(np.concatenate([one.amounts for one in connections])[order])])
        first = np.searchsorted(at_ms, at_ms - (windows.span_ms + windows.size_ms), side="left")
        most = float((so_far[1:] - so_far[first]).max(initial=0.0))
        return most <= self._limit * (windows.samples - 1) * windows.size_ms / 1000 * _NEAR


_NEAR: Final = 0.95


def charge_meter(
    meter: Meter | None, quota_type: ClientQuotaType, connection: Connection, amount: float, now_ms: int
) -> Charged:
    """Charge a request to a meter, None where nothing is limited."""
    if meter is None:
        return _NOT_LIMITED
    throttle, accepted = charge(meter, quota_type, amount, now_ms, strict=connection.is_strict)
    if throttle is None:
        return Charged(0, True, _level(meter))
    # Who is refused for no time at all comes again after a millisecond.
    return Charged(max(throttle.throttle_ms, 0 if accepted else 1), accepted, _level(meter))


_NOT_LIMITED: Final = Charged(0, accepted=True, level=0.0)


def _level(meter: Meter) -> float:
    """What the limit was compared with, by the limit; of mutations the tokens used, by those of a full bucket."""
    limit = meter.limit
    if isinstance(meter, RateMeter):
        used = meter.compared
    else:
        limit *= meter.bucket.windows.span_ms / 1000
        used = limit - meter.bucket.tokens
    return used / limit if limit else inf * used if used else 0.0
