"""Whether logs given as those of one broker can be: by its addresses in them, and by their times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kquota.errors import InputError
from kquota.pipeline.dataset.summary import Overlap
from kquota.pipeline.ingest.request_log.clock import IN_ORDER_MS, LogTimes

__all__ = ["MixedBrokersError", "ReadLog", "find_overlaps"]

_NAMED: Final = 6


@dataclass(frozen=True, slots=True)
class ReadLog:
    """A log file: when it was written, and at which addresses clients reached the broker."""

    path: str
    broker_id: int
    times: LogTimes
    addresses: frozenset[str]
    """``host:port`` of the broker: one for each listener and network that was used."""
    span_ms: tuple[int, int] | None = None
    """From the first second in which anything was recorded to the end of the last."""

    def overlap_ms(self, later: ReadLog) -> float:
        """For how long both were written, in milliseconds; negative with a pause between them."""
        return min(self.times.latest_ms, later.times.latest_ms) - max(self.times.earliest_ms, later.times.earliest_ms)


class MixedBrokersError(InputError):
    """Logs of several brokers were given as those of one: they have no address in common, and overlap in time."""

    def __init__(self, broker_id: int, logs: Sequence[ReadLog]) -> None:
        self.broker_id = broker_id
        self.paths = tuple(log.path for log in logs)
        named = [f"{log.path} ({', '.join(sorted(log.addresses)[:2])})" for log in logs[:_NAMED]]
        more = f" and {len(logs) - _NAMED:,} more" if len(logs) > _NAMED else ""
        super().__init__(
            f"given as logs of broker {broker_id}, but of several: their addresses differ, and their times overlap: "
            f"{', '.join(named)}{more}"
        )


def find_overlaps(logs: Iterable[ReadLog]) -> list[Overlap]:
    """By broker the two logs that overlap longest in time; where none do, two with different addresses.

    That is no error: one broker may have several listeners, or come back with another address.

    :raises MixedBrokersError: logs of one broker overlap in time, and have no address in common.
    """
    of_broker: dict[int, list[ReadLog]] = defaultdict(list)
    for log in logs:
        of_broker[log.broker_id].append(log)
    found = []
    for broker_id, those in sorted(of_broker.items()):
        those.sort(key=lambda log: (log.times.earliest_ms, log.path))
        mixed: dict[str, ReadLog] = {}
        pair, longest_ms = ["", ""], 0.0
        open_logs: list[ReadLog] = []
        for log in those:
            open_logs = [one for one in open_logs if one.overlap_ms(log) > IN_ORDER_MS]
            for one in open_logs:
                if one.addresses and log.addresses and not one.addresses & log.addresses:
                    mixed |= {one.path: one, log.path: log}
                if one.overlap_ms(log) > longest_ms:
                    pair, longest_ms = [one.path, log.path], one.overlap_ms(log)
            open_logs.append(log)
        if mixed:
            raise MixedBrokersError(broker_id, list(mixed.values()))
        known = [log for log in those if log.addresses]
        other = next((log for log in known if not log.addresses & known[0].addresses), None)
        if longest_ms:
            found.append(Overlap(broker_id, pair, round(longest_ms)))
        elif other is not None:
            found.append(Overlap(broker_id, [known[0].path, other.path], 0))
    return found
