"""The comparison of two servers finds nothing between equal ones, and does find what differs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kquota.errors import ApiError
from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity
from kquota.stores import open_store
from kquota.stores.host_names import HostNames
from kquota.stores.local import LocalStore
from kquota.stores.memory import MemoryKeeper
from tests.kit.differential import Report, compare
from tests.kit.quota_requests import CLASSES, LONG_NAME_CLASSES, OWN_LIMITS, quota_requests
from tests.kit.quota_server import running_server


def compared(one: LocalStore, other: LocalStore, requests: int, classes: Sequence[str] = CLASSES) -> Report:
    with running_server(one) as real, running_server(other) as ours:
        return compare(quota_requests(requests, 3, classes), str(real), str(ours), same_within_s=0.0)


def test_the_same_seed_gives_the_same_requests_of_every_class() -> None:
    """Equally many of each."""
    first, again, other = (list(quota_requests(300, seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert [one.number for one in first] == list(range(301))
    counts = Counter(one.kind for one in quota_requests(len(CLASSES) * 3, seed=5) if one.kind != OWN_LIMITS)
    assert set(counts) == set(CLASSES)
    assert max(counts.values()) - min(counts.values()) <= 3


def test_equal_servers_do_not_differ() -> None:
    with open_store("memory:") as one, open_store("memory:") as other:
        report = compared(one, other, requests=200)
    assert report.differences == [], str(report)
    assert report.empty_classes() == []
    assert (report.requests, report.changes > 10, report.entities > 10) == (201, True, True)


def test_names_too_long_to_be_sent_back_are_answered() -> None:
    """And whatever else is asked between them: no answer fails, and none closes the connection."""
    with open_store("memory:") as one, open_store("memory:") as other:
        report = compared(one, other, 60, (*LONG_NAME_CLASSES, "set, change and remove"))
        names = [name for entity in one.index().snapshot for name in entity.entries.values() if name]
    assert report.differences == [], str(report)
    assert {outcome for kind in LONG_NAME_CLASSES for outcome in report.outcomes[kind]} == {"accepted", "refused"}
    assert 32_000 < max(len(name.encode()) for name in names) <= 32_767


def test_another_answer_is_a_difference() -> None:
    with (
        open_store("memory:") as one,
        LocalStore(MemoryKeeper(), host_names=HostNames(is_found=lambda _: True)) as other,
    ):
        report = compared(one, other, requests=200)
    assert {difference.what for difference in report.differences} >= {"answers"}
    assert "is not a valid IP or resolvable host" in str(report)


class Forgetful(LocalStore):
    """Keeps nothing of what it acknowledges."""

    def alter(
        self, alterations: Iterable[ClientQuotaAlteration], *, validate_only: bool = False, **options: Any
    ) -> Mapping[ClientQuotaEntity, ApiError | None]:
        return super().alter(alterations, validate_only=True, **options)


def test_other_quotas_are_a_difference_where_all_answers_are_the_same() -> None:
    """Found after the first request that sets some, which is the very first."""
    with open_store("memory:") as one, Forgetful(MemoryKeeper()) as other:
        report = compared(one, other, requests=200)
    assert [(one.what, one.request.number) for one in report.differences] == [("quotas afterwards", 0)]
