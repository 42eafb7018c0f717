"""Importers of zip files are forgotten, and imports from zip files still work."""

import importlib
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

from kquota.pipeline.spark.workers import drop_zip_importers


def test_imports_from_a_zip_work_after_its_importers_were_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker imports later from pyspark.zip must still be found."""
    archive = tmp_path / "parts.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("kquota_zipped_first.py", "value = 1")
        file.writestr("kquota_zipped_later.py", "value = 2")
    monkeypatch.syspath_prepend(str(archive))
    assert importlib.import_module("kquota_zipped_first").value == 1
    assert any(isinstance(one, zipimporter) for one in sys.path_importer_cache.values())
    drop_zip_importers()
    assert not any(isinstance(one, zipimporter) for one in sys.path_importer_cache.values())
    assert importlib.import_module("kquota_zipped_later").value == 2
