"""The same requests to two servers, a real broker and ours, and everything in which their answers or quotas differ.

Both get the same bytes. An answer is compared for its error codes, messages, entities and values (bit for bit, NaN
too), whatever their order. A broker may keep what it has acknowledged a moment before Describe shows it, so after each
answered alteration the quotas are asked for until they are equal, for a bounded time.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self, TypeAlias

from kquota.wire.apis import (
    ALTER_CLIENT_QUOTAS,
    API_VERSIONS,
    APIS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    read_response,
)
from kquota.wire.messages.client_quotas import EntityPart, Entry
from tests.kit.quota_requests import CLASSES, OWN_LIMITS, QuotaRequest
from tests.kit.request_parts import describe_all

__all__ = ["Difference", "Report", "compare"]

ANSWER_WITHIN_S: Final = 120.0
SAME_WITHIN_S: Final = 30.0
MOST_DIFFERENCES: Final = 20

Outcome: TypeAlias = Literal["accepted", "refused", "closed"]
Entity: TypeAlias = "frozenset[tuple[str, str | None]]"
Quotas: TypeAlias = dict[Entity, dict[str, bytes]]


class Peer:
    """One server, and one connection to it at a time: a new one where the server has closed the last."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, frame: bytes) -> bytes | None:
        """The answer without its size, or None where the server closed the connection instead.

        :raises TimeoutError: neither happened.
        """
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=ANSWER_WITHIN_S)
        try:
            self._socket.sendall(frame)
            [size] = struct.unpack(">i", self._read(4))
            return self._read(size)
        except ConnectionError:
            self.close()
            return None

    def quotas(self) -> Quotas:
        """All of them."""
        request = describe_all()
        frame = self.ask(request.frame(-1))
        assert frame is not None
        _, answer = read_response(DESCRIBE_CLIENT_QUOTAS, request.version, frame)
        assert answer.error_code == 0, answer
        return _quotas(answer.entries)

    def _read(self, size: int) -> bytes:
        assert self._socket is not None
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise ConnectionResetError
            parts += part
        return bytes(parts)


@dataclass(frozen=True, slots=True)
class Difference:
    """What one of them made of a request, and the other did not."""

    request: QuotaRequest
    what: str
    real: str
    ours: str

    def __str__(self) -> str:
        request = self.request
        frame = request.frame.hex() if len(request.frame) <= 1000 else f"{request.frame[:1000].hex()}..."
        return (
            f"request {request.number} ({request.kind}; API {request.api_key} v{request.version}): {self.what}\n"
            f"  real: {self.real}\n  ours: {self.ours}\n  frame: {frame}"
        )


@dataclass(slots=True)
class Report:
    """What was compared."""

    requests: int = 0
    outcomes: dict[str, Counter[Outcome]] = field(default_factory=dict)
    """Of each class, what the real broker made of its requests."""
    changes: int = 0
    """Requests after which there were other quotas than before."""
    entities: int = 0
    """Entities that have quotas at the end."""
    differences: list[Difference] = field(default_factory=list)

    def empty_classes(self) -> list[str]:
        return [kind for kind in CLASSES if not self.outcomes.get(kind)]

    def __str__(self) -> str:
        rows = [f"{'requests':>8} {'accepted':>8} {'refused':>8} {'closed':>8}  class"]
        for kind in (OWN_LIMITS, *CLASSES):
            found = self.outcomes.get(kind, Counter())
            rows.append(f"{found.total():8} {found['accepted']:8} {found['refused']:8} {found['closed']:8}  {kind}")
        rows.append(
            f"{self.requests} requests compared, {self.changes} of them changed quotas, {self.entities} entities have "
            f"some at the end: {len(self.differences)} differences"
        )
        return "\n".join([*rows, *map(str, self.differences)])


def compare(requests: Iterable[QuotaRequest], real: str, ours: str, *, same_within_s: float = SAME_WITHIN_S) -> Report:
    """Send all requests to both addresses (``host:port``), and say in what they differ.

    Ends early where their quotas differ, because all that follows would, or where there are many differences.
    """
    report = Report()
    with Peer(real) as real_peer, Peer(ours) as our_peer:
        before = our_peer.quotas()
        last: QuotaRequest | None = None
        for last in requests:
            answers = [_answer(last, peer) for peer in (real_peer, our_peer)]
            report.requests += 1
            report.outcomes.setdefault(last.kind, Counter())[_outcome(answers[0])] += 1
            if answers[0] != answers[1]:
                report.differences.append(Difference(last, "answers", *_only_unequal(*answers)))
            if last.api_key == ALTER_CLIENT_QUOTAS.key and answers[0] is not None:
                after, difference = _settled(last, real_peer, our_peer, same_within_s)
                report.changes += after != before
                before = after
                if difference is not None:
                    report.differences.append(difference)
                    return report
            if len(report.differences) >= MOST_DIFFERENCES:
                return report
        assert last is not None
        after, difference = _settled(last, real_peer, our_peer, same_within_s)
        report.entities = len(after)
        if difference is not None:
            report.differences.append(difference)
    return report


def _settled(request: QuotaRequest, real: Peer, ours: Peer, within_s: float) -> tuple[Quotas, Difference | None]:
    wanted = ours.quotas()
    deadline = time.monotonic() + within_s
    while (found := real.quotas()) != wanted:
        if time.monotonic() > deadline:
            return wanted, Difference(request, "quotas afterwards", *_only_unequal(found, wanted))
        time.sleep(0.002)
    return wanted, None


def _answer(request: QuotaRequest, peer: Peer) -> dict[Any, Any] | None:
    """The answer as values to compare; None where the connection was closed instead."""
    try:
        frame = peer.ask(request.frame)
    except TimeoutError as error:
        error.add_note(f"no answer to request {request.number} ({request.kind}): {request.frame[:1000].hex()}")
        raise
    if frame is None:
        return None
    api = APIS[request.api_key]
    # A version that is not spoken is answered in the one that all know (KIP-511).
    version = request.version if api.speaks(request.version) else 0
    correlation_id, body = read_response(api, version, frame)
    assert correlation_id == request.number
    found: dict[Any, Any] = {"throttle_time_ms": body.throttle_time_ms}
    match api.key:
        case ALTER_CLIENT_QUOTAS.key:
            results = [(_entity(one.entity), (one.error_code, one.error_message)) for one in body.entries]
            found |= _distinct(results)
        case DESCRIBE_CLIENT_QUOTAS.key:
            found |= {"error": (body.error_code, body.error_message)}
            found |= {"entries": None} if body.entries is None else _quotas(body.entries)
        case DESCRIBE_USER_SCRAM_CREDENTIALS.key:
            found |= {"error": (body.error_code, body.error_message)}
            found |= _distinct(
                [(one.user, (one.error_code, one.error_message, str(one.credential_infos))) for one in body.results]
            )
        case API_VERSIONS.key:
            found |= {"error": (body.error_code, None), "versions": body.api_keys}
        case _:
            raise AssertionError(f"an answer to {request}")
    return found


def _quotas(entries: Iterable[Entry]) -> Quotas:
    return _distinct(
        [
            (_entity(entry.entity), _distinct([(one.key, struct.pack(">d", one.value)) for one in entry.values]))
            for entry in entries
        ]
    )


def _entity(parts: Iterable[EntityPart]) -> Entity:
    return frozenset(_distinct([(part.entity_type, part.entity_name) for part in parts]).items())


def _distinct(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """The pairs as a dictionary, from which none has been lost."""
    found = dict(pairs)
    assert len(found) == len(pairs), pairs
    return found


def _outcome(answer: Mapping[Any, Any] | None) -> Outcome:
    """Refused where anything in it is."""
    if answer is None:
        return "closed"
    codes = [value[0] for value in answer.values() if isinstance(value, tuple)]
    return "refused" if any(codes) else "accepted"


def _only_unequal(real: Mapping[Any, Any] | None, ours: Mapping[Any, Any] | None) -> tuple[str, str]:
    """Of two answers, or quotas, what one has and the other has not; a little of it."""
    if real is None or ours is None:
        return _short(real), _short(ours)
    missing = object()
    unequal = [key for key in {**real, **ours} if real.get(key, missing) != ours.get(key, missing)]
    of_real, of_ours = ({_shown(key): one[key] for key in unequal if key in one} for one in (real, ours))
    return _short(of_real), _short(of_ours)


def _shown(key: Any) -> Any:
    return tuple(sorted(key, key=str)) if isinstance(key, frozenset) else key


def _short(value: object) -> str:
    text = "the connection was closed" if value is None else repr(value)
    return text if len(text) <= 1500 else f"{text[:1500]}... ({len(text)} characters)"
