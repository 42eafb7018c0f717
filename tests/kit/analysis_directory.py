"""A dataset as `kquota analyze --out` writes one, made row by row: for tests of what reads it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from kquota.files import QuotaFile, QuotaTimeline
from kquota.pipeline.dataset import tables
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.steps import QUOTAS, Step
from kquota.pipeline.dataset.summary import Summary
from tests.kit.datasets import USUAL_TABLES

START_MS = 1_767_323_045_000  # 2026-01-02T03:04:05Z

Row = dict[str, Any]

_EVERYTHING = Step("test", writes=(*tables.ALL_TABLES, QUOTAS), parts=Summary.__struct_fields__)


@dataclass
class AnalysisDirectory:
    """Rows to be, by table. What a row does not say is 0, null or '' as its column allows."""

    summary: Row = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in tables.ALL_TABLES})
    without_rows: frozenset[str] = frozenset()
    """Tables of steps that were run and found nothing."""
    left_out: frozenset[str] = frozenset()
    """Tables of steps that were not run."""
    quotas: QuotaFile | None = None
    """That it was analysed with."""

    def add(self, table: tables.Table, **values: Any) -> None:
        unknown = values.keys() - set(table.columns)
        assert not unknown, f"{table.name} has no column {unknown}"
        defaults: Row = dict.fromkeys(table.columns)
        defaults |= {"cluster": ""}
        for name in (
            "broker_id",
            "requests",
            "throttled_requests",
            "throttle_ms",
            "throttle_max_ms",
            "connections",
            "unknown_amounts",
        ):
            if name in defaults:
                defaults[name] = 0
        self.rows[table.name].append(defaults | values)

    def client(self, user: str | None, client_id: str | None, key: str = "producer_byte_rate", **values: Any) -> None:
        """A row of `clients`; with a `limit`, `limit_source` and `meter` are those of a rule on the user."""
        if values.get("limit") is not None:
            values = {"limit_source": f"user={user}", "level": 3, "meter": f"user={user}"} | values
        values = {"amount": 1000.0, "requests": 10} | values
        self.add(tables.CLIENTS, user=user, client_id=client_id, key=key, **values)

    def usage(self, user: str | None, client_id: str | None, second: int, amount: float | None, **values: Any) -> None:
        """One cell of one second, `second` counted from START_MS."""
        start_ms = START_MS + second * 1000
        given = {
            "cell_start_ms": start_ms,
            "cell_ms": 1000,
            "source": "request-log",
            "grain": "client",
            "key": "producer_byte_rate",
            "requests": 1,
            "date": datetime.datetime.fromtimestamp(start_ms / 1000, datetime.UTC).date(),
        }
        self.add(tables.USAGE, user=user, client_id=client_id, amount=amount, **(given | values))

    def request(
        self, user: str | None, client_id: str | None, at_ms: float, charged: float | None, **values: Any
    ) -> None:
        """A request `at_ms` after START_MS; without `seq`, in the order in which they are given."""
        given = {
            "connection": "",
            "seq": len(self.rows["requests"]),
            "end_ms": START_MS + at_ms,
            "record_ms": START_MS + at_ms,
            "api_key": 0,
            "api_version": 13,
            "key": "producer_byte_rate",
            "local_ms": 0.0,
            "remote_ms": 0.0,
            "listener": "",
        }
        self.add(tables.REQUESTS, user=user, client_id=client_id, amount=charged, **(given | values))

    def utilisation(self, meter: str, limit: float, rate_max: float | None, **values: Any) -> None:
        given = {
            "key": "producer_byte_rate",
            "limit_source": meter,
            "rate_mean": rate_max,
            "rate_p50": rate_max,
            "rate_p95": rate_max,
            "rate_p99": rate_max,
            "peak_1s": rate_max,
            "seconds_active": 1,
            "seconds_over_80": 0,
            "seconds_over_100": 0,
            "requests": 1,
        }
        self.add(tables.UTILISATION, meter=meter, limit=limit, rate_max=rate_max, **(given | values))

    def throttled(self, meter: str | None, first: int, last: int, **values: Any) -> None:
        """An episode from second `first` to second `last`, counted from START_MS."""
        given = {
            "key": "producer_byte_rate",
            "cause": "producer_byte_rate",
            "requests": 1,
            "throttle_ms": 1000,
            "throttle_max_ms": 1000,
            "clients": ["user=alice,client-id=etl"],
        }
        self.add(
            tables.THROTTLED,
            meter=meter,
            start_ms=START_MS + first * 1000,
            end_ms=START_MS + last * 1000,
            **(given | values),
        )

    def calibration(self, meter: str, waits: int, within: float | None, **values: Any) -> None:
        """A row of `calibration`: so many waits told, and the share of them that the replay gives."""
        given = {
            "key": "producer_byte_rate",
            "broker_id": 1,
            "throttled_requests": waits,
            "predicted_requests": waits,
            "false_negatives": 0,
            "false_positives": 0,
            "within_5ms_or_5pct": within,
            "within_as_logged": within,
            "error_p50_ms": 1.0,
            "error_p99_ms": 2.0,
            "throttle_ms_logged": 1000,
            "throttle_ms_predicted": 1000,
            "predicted_low_ms": 1000,
            "predicted_high_ms": 1000,
            "not_compared": 0,
        }
        self.add(tables.CALIBRATION, meter=meter, **(given | values))

    def what_if(self, meter: str, limit_old: float | None, limit_new: float | None, **values: Any) -> None:
        """A row of `whatif`: another limit for a meter that is not throttled unless `values` say so."""
        given = {
            "key": "producer_byte_rate",
            "broker_id": 1,
            "limit_old": limit_old,
            "limit_new": limit_new,
            "model": "open",
            "grain": "request",
            "amount_old": 1000.0,
            "amount_new": 1000.0,
            "throttled_ms": 0.0,
            "throttled_share": 0.0,
            "max_delay_ms": 0.0,
            "total_delay_ms": 0.0,
            "backlog_max": 0.0,
            "newly_throttled": False,
            "no_longer_throttled": False,
            "unknowns": [],
        }
        self.add(tables.WHATIF, meter=meter, **(given | values))

    def curve(self, meter: str, shares: Mapping[float, float], **values: Any) -> None:
        """Rows of `curve`: by limit, the part of the time in which the meter is muted, and as many seconds' wait."""
        given = {"key": "producer_byte_rate", "broker_id": 1, "throttled_ms": 0.0, "amount": 1000.0}
        for limit, share in shares.items():
            row = {"limit": limit, "throttled_share": share, "max_delay_ms": share * 1000}
            self.add(tables.CURVE, meter=meter, **(given | row | values))

    def recommendation(self, entity: str, now: float | None, new: float | None, **values: Any) -> None:
        given = {
            "key": "producer_byte_rate",
            "reason": "the lowest with throttled_share<=0.01",
            "predicted_throttled_share": 0.004,
            "predicted_max_delay_ms": 250.0,
            "predicted_throttled_requests": 3,
        }
        self.add(tables.RECOMMENDATIONS, entity=entity, value_now=now, value_new=new, **(given | values))

    def rejected(self, reason: str, line: int, sample: str = "", file: str = "kafka-request.log") -> None:
        self.add(tables.REJECTED, reason=reason, line=line, sample=sample, file=file)

    def write(self, directory: Path) -> Path:
        """Write every table, those without rows too, but for those that not every analysis has; and the summary."""
        counts = ("clients", "meters", "limited_meters", "throttled_meters", "throttle_ms")
        summary = msgspec.to_builtins(Summary.empty()) | dict.fromkeys(counts, 0) | self.summary
        with Dataset.create(directory, overwrite=True).run(_EVERYTHING) as run:
            for name, table in tables.ALL_TABLES.items():
                if name in self.left_out:
                    continue
                if self.rows[name] or (name in USUAL_TABLES and name != "requests") or name in self.without_rows:
                    content = pa.Table.from_pylist(self.rows[name], table.arrow_schema)
                    run.add(name, run.writer(name).write(content))
            if self.quotas is not None:
                run.set_quotas(QuotaTimeline.always(self.quotas))
            run.summary = msgspec.convert(summary, Summary)
            run.commit()
        return directory
