"""What a quota callback would have done to recorded requests: it says what they count on, and under which limit."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from kquota.config import BrokerConfig
from kquota.metering.callback import ClientQuotaType, Cluster
from kquota.metering.engine import PeriodicTasks, QuotaManagers, client_quotas
from kquota.metering.loading import load_callback
from kquota.metering.meters import UNLIMITED
from kquota.pipeline.simulation.arrivals import ENVELOPE_BYTES, Outcome
from kquota.pipeline.simulation.requests import Charged, Connection, Limiter, QueueTurn, outcome_of, queue_turns
from kquota.quotas import QuotaSnapshot

__all__ = ["CallbackOutcome", "CallbackSetup", "simulate_callback"]


@dataclass(frozen=True, slots=True)
class CallbackSetup:
    """A callback, to be made for each broker as brokers make their own, and what it is told first."""

    name: str
    """``package.module:Class``, or that of an installed one."""
    search_path: str
    """The directory in which its module may be, too."""
    configs: Mapping[str, str]
    quotas: QuotaSnapshot
    broker_config: BrokerConfig
    cluster: Cluster = Cluster()  # noqa: RUF009 - it is frozen

    def managers(self, broker_id: int) -> QuotaManagers:
        """A broker's managers, with a callback of their own.

        :raises InputError: there is no such callback.
        :raises CallbackRefusedError: it cannot be set up.
        """
        if self.search_path not in sys.path:
            sys.path.append(self.search_path)
        managers = QuotaManagers(self.broker_config)
        managers.swap_callback(
            load_callback(self.name), {"broker.id": str(broker_id), "node.id": str(broker_id), **self.configs}
        )
        managers.update_cluster_metadata(self.cluster)
        managers.update_quotas(client_quotas(self.quotas))
        return managers


class CallbackOutcome(NamedTuple):
    """What came of one of the callback's meters."""

    meter: str
    """Its tags, as canonical text; '' where the callback has nothing counted."""
    limit: float | None
    """The last one."""
    connections: Sequence[int]
    outcome: Outcome


class _Managed(Limiter):
    """The meter that a broker's manager gives to the requests of one client, which may be another each time."""

    def __init__(
        self, managers: QuotaManagers, chores: PeriodicTasks, key: str, client: tuple[str, str], *, is_strict: bool
    ) -> None:
        super().__init__(key, None, is_strict=is_strict)
        self.envelope = ENVELOPE_BYTES.get(key)
        self._managers = managers
        self._manager = managers.of(self._quota_type)
        self._chores = chores
        self._client = client

    @property
    def largest(self) -> float:
        if self._quota_type is not ClientQuotaType.FETCH:
            return inf
        return self._managers.fetch.max_value_in_quota_window(*self._client) or inf

    def count(self, amount: float, now_ms: int) -> Charged:
        self._chores.run_until(now_ms)
        self.meter = self._manager.meter(*self._client)
        return super().count(amount, now_ms)

    def name_and_limit(self) -> tuple[str, float | None]:
        """Of the meter that was counted on last, or would be."""
        meter = self.meter or self._manager.meter(*self._client)
        if meter is None:
            return "", None
        return meter.key.to_text(), None if meter.limit == UNLIMITED else meter.limit


def simulate_callback(
    connections: Sequence[Connection],
    clients: Sequence[tuple[str, str]],
    key: str,
    managers: QuotaManagers,
    *,
    in_flight: int,
    end_ms: float,
) -> Iterator[CallbackOutcome]:
    """What a callback does to all requests of a broker that count on one key, meter by meter.

    :param clients: user and client id of each connection.
    :param in_flight: how many requests a connection has in flight; with 0 they come as they were recorded.
    """
    chores = PeriodicTasks(managers)
    counters = [
        _Managed(managers, chores, key, client, is_strict=one.is_strict)
        for one, client in zip(connections, clients, strict=True)
    ]
    turns: dict[str, list[QueueTurn]] = {}
    limits: dict[str, float | None] = {}
    members: dict[str, set[int]] = {}
    for turn in queue_turns(connections, counters, in_flight=in_flight, end_ms=end_ms):
        meter, limits[meter] = counters[turn.connection].name_and_limit()
        turns.setdefault(meter, []).append(turn)
        members.setdefault(meter, set()).add(turn.connection)
    for meter, found in turns.items():
        yield CallbackOutcome(
            meter, limits[meter], sorted(members[meter]), outcome_of(connections, found, end_ms=end_ms)
        )
