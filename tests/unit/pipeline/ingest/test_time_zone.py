"""Names of time zones are checked before anything is read."""

import pytest

from kquota.errors import InputError
from kquota.pipeline.ingest.time_zone import check_time_zone


@pytest.mark.parametrize("name", ["Mars/Base", "", "../etc/passwd", "UTC\0"])
def test_unknown_time_zones(name: str) -> None:
    with pytest.raises(InputError, match="no such time zone"):
        check_time_zone(name)
