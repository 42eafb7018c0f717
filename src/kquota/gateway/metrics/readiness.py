"""Whether a gateway is ready for clients, and why not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from kquota.stores.feed import QuotaFeed

__all__ = ["MAX_AGES", "Check", "check_brokers", "check_listening", "check_quotas", "is_ready", "to_lines"]

MAX_AGES: Final = 3
"""How many times ``gateway.metadata.max.age.ms`` may pass without a word from the brokers."""


class Check(NamedTuple):
    """One thing that has to be so, and what else is to be known of it."""

    name: str
    is_ok: bool
    reason: str = ""
    facts: tuple[tuple[str, object], ...] = ()


def check_listening(*, is_listening: bool, is_draining: bool) -> Check:
    """Clients can connect, and are not about to be sent away."""
    if is_draining:
        return Check("listening", False, "the gateway is being stopped")
    return Check("listening", is_listening, "" if is_listening else "the gateway does not listen yet")


def check_brokers(age_s: float | None, metadata_max_age_ms: int) -> Check:
    """The brokers were heard of lately."""
    most_s = MAX_AGES * metadata_max_age_ms / 1000
    if age_s is None:
        return Check("brokers", False, "the brokers are not known yet")
    reason = "" if age_s <= most_s else f"the brokers were last heard of {age_s:.1f} s ago, more than {most_s:g} s"
    return Check("brokers", not reason, reason, (("age_ms", round(age_s * 1000)),))


def check_quotas(feed: QuotaFeed) -> Check:
    """The quotas are known. Old ones are no reason to send clients away: they stay in force."""
    age_ms = feed.age_ms()
    if age_ms == float("inf"):
        return Check("quotas", False, "the quotas are not known yet")
    error = feed.last_error
    reason = "" if error is None else f"the last ones stay in force: {error}"
    return Check("quotas", True, reason, (("age_ms", round(age_ms)), ("stale", feed.is_stale())))


def is_ready(checks: Sequence[Check]) -> bool:
    """Whether all is as it has to be."""
    return all(one.is_ok for one in checks)


def to_lines(checks: Sequence[Check]) -> str:
    """A JSON object on a line for each."""
    lines = []
    for one in checks:
        found = {"check": one.name, "ok": one.is_ok, **dict(one.facts)}
        lines.append(json.dumps({**found, "reason": one.reason} if one.reason else found))
    return "\n".join(lines) + "\n"
