"""Not a timing but a check: names as long as Kafka's protocol allows, and longer, on a real Kafka 4.3.0 and on ours.

A broker takes some names that it can then not write any more, and ends, or closes the connection of everybody who
describes them; so each case has a broker of its own. What both make of the alteration is printed, and whether all
quotas can be described afterwards; `docs/differences.md` says why ours differs. Ends with 1 where ours cannot be
described.

Usage: ``python -m benchmarks.check_long_names``
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from examples.capture.broker import running_broker
from kquota.stores import open_store
from kquota.wire.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS, read_response
from kquota.wire.primitives import uvarint
from tests.kit.differential import Peer
from tests.kit.kafka import NEW
from tests.kit.quota_server import running_server
from tests.kit.request_parts import describe_all

SETTLES_WITHIN_S: Final = 5.0
RATE: Final = b"producer_byte_rate"
CASES: Final[dict[str, tuple[bytes, bytes, bytes]]] = {
    "name of 32,766 bytes": (b"user", b"x" * 32_766, RATE),
    "name of 32,767 bytes": (b"user", b"x" * 32_767, RATE),
    "name of 32,768 bytes": (b"user", b"x" * 32_768, RATE),
    "name of 16,383 characters of two bytes": (b"user", "é".encode() * 16_383, RATE),
    "name of 10,922 invalid bytes": (b"user", b"\xff" * 10_922, RATE),
    "name of 10,923 invalid bytes": (b"user", b"\xff" * 10_923, RATE),
    "name of 32,767 invalid bytes": (b"user", b"\xff" * 32_767, RATE),
    "client-id of 32,767 invalid bytes": (b"client-id", b"\xff" * 32_767, RATE),
    "ip of 32,767 invalid bytes": (b"ip", b"\xff" * 32_767, b"connection_creation_rate"),
    "entity type of 32,767 invalid bytes": (b"\xff" * 32_767, b"alice", RATE),
    "quota key of 32,767 invalid bytes": (b"user", b"alice", b"\xff" * 32_767),
}
"""By what it is: entity type, name and quota key of the one value that is set."""


class Outcome(NamedTuple):
    """What a server made of a case, in words."""

    altered: str
    described: str


def alter(kind: bytes, name: bytes, key: bytes) -> bytes:
    """AlterClientQuotas v1 that sets one value, as a frame."""

    def text(raw: bytes) -> bytes:
        return uvarint(len(raw) + 1) + raw

    entity = b"\x02" + text(kind) + text(name) + b"\0"
    ops = b"\x02" + text(key) + b"\x3f\xf0" + bytes(6) + b"\0\0"
    payload = b"\0\x31\0\x01\0\0\0\x07\0\x01x\0" + b"\x02" + entity + ops + b"\0" + b"\0\0"
    return len(payload).to_bytes(4, "big") + payload


def outcome(address: str, case: tuple[bytes, bytes, bytes]) -> Outcome:
    """What the server at `address` makes of it."""
    with Peer(address) as peer:
        frame = peer.ask(alter(*case))
    if frame is None:
        return Outcome("connection closed", described(address))
    [result] = read_response(ALTER_CLIENT_QUOTAS, 1, frame)[1].entries
    altered = f"{result.error_code} {(result.error_message or '')[:60]}".strip()
    return Outcome(altered, described(address, expected=0 if result.error_code else 1))


def described(address: str, *, expected: int | None = None) -> str:
    """How all quotas are described in the end: a broker does not describe at once what it has acknowledged, and takes
    its time to end.
    """
    request = describe_all()
    end = time.monotonic() + SETTLES_WITHIN_S
    found = ""
    while time.monotonic() < end:
        try:
            with Peer(address) as peer:
                frame = peer.ask(request.frame(1))
        except ConnectionRefusedError:
            return "nobody listens any more"
        if frame is None:
            found = "connection closed"
        else:
            entries = read_response(DESCRIBE_CLIENT_QUOTAS, request.version, frame)[1].entries or ()
            found = f"{len(entries)} entities"
            if len(entries) == expected:
                break
        time.sleep(0.1)
    return found


def why_it_ended(log: Path) -> list[str]:
    """What a broker's log says of faults after which it ends."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line[:200] for line in lines if "fatal" in line.lower()][:2]


def main() -> int:
    # Connections are closed because of what they sent, as they should be.
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    is_mute = False
    for what, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            with running_broker(NEW, Path(folder) / "kafka", passwords={}, log_requests=False) as broker:
                real = outcome(broker.plaintext, case)
                faults = why_it_ended(broker.folder / "server.log")
            with open_store(f"sqlite:///{folder}/quotas.db") as store, running_server(store) as address:
                ours = outcome(str(address), case)
        is_mute = is_mute or not ours.described.endswith("entities")
        print(f"{what}:{' the same' if real == ours else ''}")
        for server, found in (("Kafka", real), ("kquota", ours)) if real != ours else (("both", real),):
            print(f"    {server:7} alter: {found.altered}; describe all: {found.described}")
        for fault in faults:
            print(f"            Kafka's log: {fault}")
    return 1 if is_mute else 0


if __name__ == "__main__":
    sys.exit(main())
