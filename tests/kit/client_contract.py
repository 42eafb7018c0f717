"""What the client programs in Python share: their settings, the records they send, and the lines they write.

tests/real/clients/README.md describes all three; the programs in Java and Go do the same.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

CHECKSUM_BYTES: Final = 8  # CRC-32 as hexadecimal digits, before the payload

_SECURITY: Final = ("sasl.mechanism", "sasl.username", "sasl.password", "ssl.ca.location")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One program's arguments; the names in the comments are those of the command line where they differ."""

    bootstrap: str  # bootstrap.servers
    mode: str
    topic: str
    output: Path
    partitions: int
    client_id: str  # client.id
    records: int
    seconds: float  # 0: no end
    size: int  # bytes of a value
    rate: float  # records per second; 0: no limit
    idempotent: bool  # enable.idempotence
    compression: str  # compression.type
    linger_ms: int  # linger.ms
    delivery_timeout_ms: int  # delivery.timeout.ms
    transactional_id: str  # transactional.id
    per_transaction: int  # per.transaction
    abort_every: int  # abort.every; 0: none is aborted
    group: str  # group.id
    isolation: str  # isolation.level
    security_protocol: str  # security.protocol
    security: Mapping[str, str] = field(repr=False)

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Self:
        """From ``key=value`` arguments. Raises SystemExit where one is missing or unknown."""
        given = dict(one.split("=", 1) for one in arguments)
        try:
            settings = cls(
                bootstrap=given.pop("bootstrap.servers"),
                mode=given.pop("mode"),
                topic=given.pop("topic"),
                output=Path(given.pop("output")),
                partitions=int(given.pop("partitions", "1")),
                client_id=given.pop("client.id", "client"),
                records=int(given.pop("records", str(2**62))),
                seconds=float(given.pop("seconds", "0")),
                size=int(given.pop("size", "200")),
                rate=float(given.pop("rate", "0")),
                idempotent=given.pop("enable.idempotence", "true") == "true",
                compression=given.pop("compression.type", "none"),
                linger_ms=int(given.pop("linger.ms", "5")),
                delivery_timeout_ms=int(given.pop("delivery.timeout.ms", "120000")),
                transactional_id=given.pop("transactional.id", ""),
                per_transaction=int(given.pop("per.transaction", "10")),
                abort_every=int(given.pop("abort.every", "0")),
                group=given.pop("group.id", ""),
                isolation=given.pop("isolation.level", "read_uncommitted"),
                security_protocol=given.pop("security.protocol", "PLAINTEXT"),
                security={name: given.pop(name) for name in _SECURITY if name in given},
            )
        except KeyError as missing:
            raise SystemExit(f"{missing} is missing") from None
        if given:
            raise SystemExit(f"unknown: {', '.join(given)}")
        return settings

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL_")


@dataclass(frozen=True, slots=True)
class Record:
    sequence: int
    partition: int
    key: bytes
    value: bytes

    @classmethod
    def make(cls, settings: Settings, sequence: int) -> Self:
        key = f"{settings.client_id}:{sequence}".encode()
        digest = hashlib.sha256(key).digest()
        length = max(0, settings.size - CHECKSUM_BYTES)
        payload = (digest * (length // len(digest) + 1))[:length]
        return cls(sequence, sequence % settings.partitions, key, b"%08x" % zlib.crc32(payload) + payload)


class Pace:
    """When the next record is due, by the rate, and whether the time is over."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.started = time.monotonic()

    def wait_s(self, sequence: int) -> float:
        """Seconds until the record with this sequence is due."""
        if not self._settings.rate:
            return 0.0
        return max(0.0, self.started + sequence / self._settings.rate - time.monotonic())

    def is_over(self) -> bool:
        return bool(self._settings.seconds) and time.monotonic() - self.started > self._settings.seconds


def records(settings: Settings) -> Iterator[Record]:
    """Each when it is due."""
    pace = Pace(settings)
    for sequence in range(settings.records):
        if pace.is_over():
            return
        if (wait_s := pace.wait_s(sequence)) > 0:
            time.sleep(wait_s)
        yield Record.make(settings, sequence)


def transactions(settings: Settings) -> Iterator[tuple[int, list[Record], bool]]:
    """Their numbers, their records, each when its last record is due, and whether they are to be aborted."""
    number, batch = 0, []
    for record in records(settings):
        batch.append(record)
        if len(batch) == settings.per_transaction:
            yield number, batch, _is_to_abort(settings, number)
            number, batch = number + 1, []
    if batch:
        yield number, batch, _is_to_abort(settings, number)


def _is_to_abort(settings: Settings, number: int) -> bool:
    return settings.abort_every > 0 and (number + 1) % settings.abort_every == 0


class Output:
    """The lines of what was acknowledged or read, each written at once, and the summary at the end."""

    def __init__(self, settings: Settings) -> None:
        self._file = settings.output.open("w", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()
        self._pace = Pace(settings)
        self._last: dict[int, int] = {}
        self._ended = self._pace.started
        self._bytes = 0
        self.lines = 0
        self.different = 0
        """Records read, each counted once."""
        self.errors: Counter[str] = Counter()

    def write(self, partition: int, offset: int, key: bytes, value: bytes, transaction: str = "") -> None:
        """One record; ``transaction`` is its state and number in mode transact. An offset of -1 is not known."""
        with self._lock:
            self._file.write(f"{partition} {offset} {key.decode()} {checksum(value)}{transaction}\n")
            self.lines += 1
            self._bytes += len(value)
            self._ended = time.monotonic()
            if offset > self._last.get(partition, -1):
                self._last[partition] = offset
                self.different += 1

    def failed(self, error: object) -> None:
        with self._lock:
            self.errors[f"{type(error).__name__}: {error}"] += 1

    def finish(self) -> int:
        """Print the summary as a line of JSON; the exit code: 1 where something was not acknowledged."""
        self._file.close()
        summary = {
            "records": self.lines,
            "bytes": self._bytes,
            "seconds": round(self._ended - self._pace.started, 3),
            "failed": sum(self.errors.values()),
            "errors": dict(self.errors.most_common(5)),
        }
        print(json.dumps(summary), flush=True)
        return 1 if self.errors else 0


def checksum(value: bytes) -> str:
    """CRC-32 of the payload as found; with ``wrong-`` before it where the value carries another one."""
    found = b"%08x" % zlib.crc32(value[CHECKSUM_BYTES:])
    return found.decode() if value[:CHECKSUM_BYTES] == found else f"wrong-{found.decode()}"


def unsecured_token(user: str) -> str:
    """A JSON web token that nobody signed (RFC 7515, "none"), valid for an hour."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": user, "iat": now, "exp": now + 3600})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join(encoded) + "."
