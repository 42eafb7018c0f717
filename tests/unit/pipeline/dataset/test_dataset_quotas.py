"""The quotas of a dataset: kept whole, and shown to people as the files that other commands take."""

from __future__ import annotations

from kquota.files import QuotaFile, QuotaPeriod, QuotaTimeline, read_quota_file
from kquota.pipeline.dataset.quotas import decode_quotas, encode_quotas, quota_files
from tests.kit.datasets import quotas_of

_FIRST, _LAST = quotas_of(1000.0).last, quotas_of(2000.0, entity="user=<default>").last
assert _FIRST is not None
assert _LAST is not None
CHANGED = QuotaTimeline(
    (QuotaPeriod(1_767_225_600_000, _FIRST), QuotaPeriod(1_767_229_200_000, _LAST)), recorded_from_ms=1_767_225_600_000
)


def test_quotas_are_read_as_they_were_written() -> None:
    for quotas in (quotas_of(1000.0), CHANGED, QuotaTimeline.always(QuotaFile(()))):
        assert decode_quotas(encode_quotas(quotas), name="quotas.json") == quotas


def test_one_file_where_they_did_not_change() -> None:
    files = quota_files(quotas_of(1000.0), 0)
    assert {name: read_quota_file(content, name=name) for name, content in files.items()} == {"quotas.yaml": _FIRST}


def test_a_file_for_each_time_where_they_did() -> None:
    files = quota_files(CHANGED, None)
    assert {name: read_quota_file(content, name=name) for name, content in files.items()} == {
        "quotas.yaml": _LAST,
        "quotas/2026-01-01T000000Z.yaml": _FIRST,
        "quotas/2026-01-01T010000Z.yaml": _LAST,
    }


def test_a_file_for_the_time_where_they_are_not_known_from_the_beginning() -> None:
    late = QuotaTimeline((QuotaPeriod(1_767_225_600_000, _FIRST),))
    assert quota_files(late, 1_767_225_600_000).keys() == {"quotas.yaml"}
    assert quota_files(late, 1_767_225_599_999).keys() == {"quotas.yaml", "quotas/2026-01-01T000000Z.yaml"}
