"""docs/resolve-api.md: its requests are answered with its answers, byte for byte."""

import re
import socket
import struct
from pathlib import Path

import pytest

from kquota.files import read_quota_file
from kquota.policy import alterations, difference
from kquota.stores import open_store
from tests.kit.quota_server import running_server

PAGE = (Path(__file__).parents[2] / "docs" / "resolve-api.md").read_text(encoding="utf-8")
[QUOTAS] = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
FRAMES = [bytes.fromhex(text) for text in re.findall(r"^```hex\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]


@pytest.mark.parametrize(
    "request_frame, answer", list(zip(FRAMES[::2], FRAMES[1::2], strict=True)), ids=["50", "10546"]
)
def test_an_example_is_what_goes_over_the_wire(request_frame: bytes, answer: bytes) -> None:
    wanted = read_quota_file(QUOTAS, name="quotas.yaml").snapshot()
    with open_store("memory:") as store, running_server(store) as address:
        store.alter(alterations(difference({}, wanted, prune=False)))
        with (
            socket.create_connection((address.host, address.port), 20) as connection,
            connection.makefile("rb") as stream,
        ):
            connection.sendall(request_frame)
            size = stream.read(4)
            assert size + stream.read(struct.unpack(">i", size)[0]) == answer
