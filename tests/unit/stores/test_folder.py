"""Folders of dated quota files."""

from pathlib import Path

import pytest

from kquota.errors import InputError
from kquota.files import QuotaFile, QuotaPeriod, QuotaTimeline
from kquota.quotas import USER, ClientQuotaEntity
from kquota.stores.folder import read_quota_folder, write_quota_folder

FILE = QuotaFile.of({ClientQuotaEntity({USER: "a:b"}): {"producer_byte_rate": 5.0}})


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """Names have no colons, hidden files are not ours."""
    dated = QuotaTimeline((QuotaPeriod(1_767_323_045_000, FILE), QuotaPeriod(1_767_323_045_678, QuotaFile(()))))
    write_quota_folder(tmp_path / "quotas", dated)
    names = sorted(file.name for file in (tmp_path / "quotas").iterdir())
    assert names == ["2026-01-02T030405.678Z.yaml", "2026-01-02T030405Z.yaml"]
    (tmp_path / "quotas" / ".2026.swp").write_text("x")
    assert read_quota_folder(tmp_path / "quotas") == dated


def test_what_is_no_dated_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "2026-01-02T03:04:05Z.yaml").write_text("[]")
    (tmp_path / "old").mkdir()
    with pytest.raises(InputError, match="old: the name is not a time in UTC"):
        read_quota_folder(tmp_path)
    with pytest.raises(InputError, match="cannot read the quotas: No such file"):
        read_quota_folder(tmp_path / "nowhere")
