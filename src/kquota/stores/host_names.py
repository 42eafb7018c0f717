"""Which host names are found: looked up with a deadline, in threads of their own, and remembered for a while."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Final, NamedTuple

from kquota.clock import Clock, SystemClock
from kquota.quotas import IP, ClientQuotaAlteration, is_literal_ip

__all__ = ["HostNames", "Hosts", "hosts_of"]

Hosts = Mapping[str, bool | None]
"""Host names: whether each is found; None where it could not be looked up in time."""

_FOUND_MS: Final = 30_000  # as a JVM's networkaddress.cache.ttl
_NOT_FOUND_MS: Final = 10_000  # networkaddress.cache.negative.ttl
_MOST_KEPT: Final = 10_000
_MOST_WAITING: Final = 1_000
_THREADS: Final = 4


class _Known(NamedTuple):
    is_found: bool
    until_ms: float


class _Asked(NamedTuple):
    name: str
    until_ms: float
    answer: Future[bool | None]


def hosts_of(alterations: Iterable[ClientQuotaAlteration]) -> list[str]:
    """The host names in entities of type ip that a broker would look up, each once."""
    names = dict.fromkeys(alteration.entity.entries.get(IP) for alteration in alterations)
    return [name for name in names if name and not is_literal_ip(name)]


class HostNames:
    """Looks names up. An answer is never waited for longer than the deadline, and never holds up another's.

    Threads that wait for a name server that does not answer do not keep the process from ending.
    """

    def __init__(
        self,
        *,
        deadline_ms: int = 2_000,
        most_names: int | None = 16,
        is_found: Callable[[str], bool] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Start nothing yet.

        :param deadline_ms: for all names of one request.
        :param most_names: how many names of one request are looked up; None for all.
        :param is_found: what asks a name server; by default the C library.
        """
        self.deadline_ms = deadline_ms
        self._most_names = most_names
        self._is_found = is_found or _is_found
        self._clock = clock or SystemClock()
        self._lock = Lock()
        self._known: dict[str, _Known] = {}
        self._waiting: dict[str, Future[bool | None]] = {}
        self._asked: SimpleQueue[_Asked] = SimpleQueue()
        self._threads = 0

    def look_up(self, names: Iterable[str]) -> Hosts:
        """Wait for the answers, up to the deadline."""
        answers = self.ask(names)
        wait(answers.values(), timeout=self.deadline_ms / 1000)
        return hosts(answers)

    def ask(self, names: Iterable[str]) -> dict[str, Future[bool | None]]:
        """The answers of one request, which may take longer than the deadline; None where it is given up."""
        now_ms = self._clock.monotonic_ms()
        answers: dict[str, Future[bool | None]] = {}
        asked = 0
        for name in dict.fromkeys(names):
            if self._most_names is not None and asked == self._most_names:
                answers[name] = _GIVEN_UP
                continue
            is_known = self._known_answer(name, now_ms)
            if is_known is None:
                asked += 1
                answers[name] = self._ask(name, now_ms)
            else:
                answers[name] = _answered(is_known)
        return answers

    def _known_answer(self, name: str, now_ms: float) -> bool | None:
        if not name.isascii() or "\0" in name or _is_number(name):
            return False
        with self._lock:
            known = self._known.get(name)
        return known.is_found if known is not None and now_ms < known.until_ms else None

    def _ask(self, name: str, now_ms: float) -> Future[bool | None]:
        with self._lock:
            waiting = self._waiting.get(name)
            if waiting is not None:
                return waiting
            if len(self._waiting) >= _MOST_WAITING:
                return _answered(None)
            answer = self._waiting[name] = Future[bool | None]()
            self._asked.put(_Asked(name, now_ms + self.deadline_ms, answer))
            if self._threads < min(_THREADS, len(self._waiting)):
                self._threads += 1
                Thread(target=self._run, name=f"host-names-{self._threads}", daemon=True).start()
        return answer

    def _run(self) -> None:
        while True:
            name, until_ms, answer = self._asked.get()
            # Who asked has given up: to look it up would only keep others waiting.
            found = self._is_found(name) if self._clock.monotonic_ms() < until_ms else None
            with self._lock:
                del self._waiting[name]
                if found is not None:
                    if len(self._known) >= _MOST_KEPT:
                        self._known.clear()
                    kept_ms = _FOUND_MS if found else _NOT_FOUND_MS
                    self._known[name] = _Known(found, self._clock.monotonic_ms() + kept_ms)
            answer.set_result(found)


def hosts(answers: Mapping[str, Future[bool | None]]) -> Hosts:
    """What is known by now."""
    return {name: answer.result() if answer.done() else None for name, answer in answers.items()}


def _answered(is_found: bool | None) -> Future[bool | None]:  # noqa: FBT001 - the answer itself
    answer = Future[bool | None]()
    answer.set_result(is_found)
    return answer


_GIVEN_UP: Final = _answered(None)


def _is_found(name: str) -> bool:
    """Source: ``InetAddress.getByName``, which may see a scope that names an interface (``fe80::1%eth0``) otherwise."""
    try:
        return bool(socket.getaddrinfo(name, None))
    except (OSError, UnicodeError):
        return False


def _is_number(name: str) -> bool:
    """Whether the C library takes it for an address: it does for more than a JVM, such as hexadecimal parts."""
    if ":" in name:
        return name.rpartition("%")[2].isdigit()
    try:
        socket.inet_aton(name)
    except OSError:
        return False
    return True
