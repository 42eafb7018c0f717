"""How requests reach a cluster: kafka-python's connections (TLS, SASL, bootstrap), carrying frames of our own.

Nothing else in kquota imports kafka-python. This module uses its connection manager, and not only what it documents:
``make test-kafka-python`` tries both ends of the range of releases that kquota takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import kafka.errors
from kafka.net import KafkaConnectionManager, NetworkSelector
from kafka.net.sasl.oauth import AbstractTokenProvider
from msgspec import Struct

from kquota.admin.carried import Answer, KafkaPythonRequest, Repeated
from kquota.admin.tls import certificate_names, explained_tls, is_about_names
from kquota.errors import (
    ConnectionFailedError,
    KquotaError,
    MalformedMessageError,
    NotAuthorizedError,
    NotSupportedError,
    ProtocolError,
    RequestTimeoutError,
    UnreachableError,
)
from kquota.printable import printable
from kquota.wire.apis import Api
from kquota.wire.frames import MAX_FRAME_BYTES

__all__ = ["KafkaTransport", "Transport"]


class Transport(Protocol):
    """Requests to one cluster, from one event loop."""

    async def versions(self, timeout_ms: float) -> Mapping[int, tuple[int, int]]:
        """By API key the versions that the brokers speak, ends included.

        :raises KquotaError: as :meth:`send`.
        """

    async def send(
        self,
        api: Api,
        body: Struct,
        *,
        timeout_ms: float,
        to_controller: bool = False,
        max_version: int | None = None,
        repeated: Repeated | None = None,
    ) -> Any:
        """Send a request in the latest version that both sides speak; returns the body of the answer.

        Where an earlier answer throttled this client (KIP-219), it is sent after that.

        :param max_version: the latest version to be used, where it shall not be the latest of all.
        :param repeated: the answers to the same request before; the same answer gives the same object.
        :raises RequestTimeoutError: it was sent, and no answer came: it may have been done or not.
        :raises MalformedMessageError: it was sent, and the answer cannot be read.
        :raises ConnectionFailedError: it was not sent; an UnreachableError where nobody answers.
        :raises IllegalArgumentError: no request can hold this body; nothing was sent.
        :raises NotSupportedError: no version of it is spoken.
        :raises NotAuthorizedError: the brokers do not let this client in.
        :raises ProtocolError: what answers is no Kafka broker.
        """

    async def find_controller(self, timeout_ms: float) -> None:
        """Ask the brokers again who the controller is. Where none answers, all stays as it is."""

    async def close(self) -> None:
        """Close all connections. Safe to call twice."""


class _TlsFailedError(kafka.errors.KafkaError):  # type: ignore[misc] # kafka-python carries no types
    """TLS does not come about, and trying again will not help."""

    def __init__(self, error: ssl.SSLError) -> None:
        super().__init__(error)


class _ThrottledForLongerError(kafka.errors.KafkaError):  # type: ignore[misc] # kafka-python carries no types
    """An earlier answer throttled this client for longer than there is time."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"the broker throttles this client for {wait_s * 1000:.0f} ms more, beyond its timeout")


_TRANSIENT: Final = (OSError, kafka.errors.KafkaConnectionError, kafka.errors.KafkaTimeoutError, kafka.errors.Cancelled)


class _Failure(NamedTuple):
    """A connection that did not come about, and to whom."""

    node_id: Any
    """The broker's number, or kafka-python's name of a bootstrap server."""
    host: str
    port: int
    is_advertised: bool
    """The cluster gave this address; otherwise it is a bootstrap server's."""
    error: BaseException


class _Manager(KafkaConnectionManager):  # type: ignore[misc] # kafka-python carries no types
    """Knows why the last connection failed, and tries no second time what cannot get better by it.

    kafka-python tries everything until the time is over, and then says that it was over.
    """

    def __init__(self, *arguments: Any, **configs: Any) -> None:
        self.last_failure: _Failure | None = None
        self._lasting_failures: dict[Any, BaseException] = {}
        super().__init__(*arguments, **configs)

    def get_connection(self, node_id: Any, *arguments: Any, **options: Any) -> Any:
        is_new = node_id not in self._conns
        connection = super().get_connection(node_id, *arguments, **options)
        if is_new:
            node = self.cluster.broker_metadata(node_id)
            failure = partial(_Failure, node_id, node.host, node.port, not self.cluster.is_bootstrap(node_id))
            connection.init_future.add_errback(lambda error: self._failed(failure(error)))
        return connection

    async def _build_transport(self, *arguments: Any, **options: Any) -> Any:
        transport = await super()._build_transport(*arguments, **options)
        transport._sock_recv = partial(_received_first, transport, transport._sock_recv)  # noqa: SLF001 (no other way)
        return transport

    def maybe_raise_auth_failure(self, node_id: Any) -> None:
        # kafka-python forgets a failed login when the attempt to connect ends, which it does without an error.
        failure = self._lasting_failures.get(node_id)
        if failure is not None:
            raise failure
        super().maybe_raise_auth_failure(node_id)

    def forget_failures(self) -> None:
        """What failed for one call may be tried again for the next."""
        self._lasting_failures.clear()
        self._auth_failures.clear()

    def node_to_ask(self, *, to_controller: bool) -> Any:
        """The controller's number where it is known, else that of any broker; None while all are paused.

        Where each failed before, one is asked all the same: kafka-python would refuse for up to 30 s what may be back.
        """
        controller = self.cluster.controller if to_controller else None
        if controller is not None:
            self.reset_backoff(controller.node_id)
            return controller.node_id
        node_id = self.least_loaded_node()
        if node_id is None:
            self._backoff.clear()
            node_id = self.least_loaded_node()
        return node_id

    def _failed(self, failure: _Failure) -> None:
        self.last_failure = failure
        tls = _tls_error(failure.error)
        if tls is not None:
            self._lasting_failures[failure.node_id] = _TlsFailedError(tls)
        elif not isinstance(failure.error, _TRANSIENT) and not getattr(failure.error, "retriable", False):
            self._lasting_failures[failure.node_id] = failure.error


def _received_first(transport: Any, receive: Callable[[], tuple[bytes, Any]]) -> tuple[bytes, Any]:
    """What was received, and an error only where that is nothing: what came before an end is read before it.

    kafka-python throws away what it reads together with the end of a connection. A broker that refuses a login answers
    and closes at once: a client that does not get to run in between would never hear why, and try until its time is
    over.
    """
    data, error = receive()
    if not data or error is None:
        return data, error
    transport.pause_reading()
    # After whoever waits for these data had their turn: they wake in the loop's next round, before what is timed.
    transport._net.call_later(0, lambda: transport.abort(error))  # noqa: SLF001 (its loop)
    return data, None


def _tls_error(error: BaseException) -> ssl.SSLError | None:
    """kafka-python wraps it in an error of its own, by one of several ways."""
    around = (error, error.__context__, error.__cause__, *error.args)
    return next((one for one in around if isinstance(one, ssl.SSLError)), None)


class _TokenProvider(AbstractTokenProvider):  # type: ignore[misc] # kafka-python carries no types
    """A function that gives a token, as kafka-python wants it."""

    def __init__(self, token: Callable[[], str]) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token()


class KafkaTransport:
    """Any Kafka, or a kquota server, over kafka-python's connections."""

    def __init__(self, bootstrap_servers: list[str], *, client_id: str, properties: Mapping[str, Any]) -> None:
        """Take the servers to begin with, and kafka-python's settings of security and timeouts.

        A ``sasl_oauth_token_provider`` may be any function that returns a token.
        """
        token = properties.get("sasl_oauth_token_provider")
        if token is not None and not isinstance(token, AbstractTokenProvider):
            properties = {**properties, "sasl_oauth_token_provider": _TokenProvider(token)}
        self._servers = bootstrap_servers
        self._security_protocol = properties.get("security_protocol", "PLAINTEXT")
        self._net = NetworkSelector()
        self._manager = _Manager(
            self._net,
            bootstrap_servers=bootstrap_servers,
            client_id=client_id,
            receive_message_max_bytes=MAX_FRAME_BYTES,
            # A connection with as many is not used at all, instead of waiting.
            max_in_flight_requests_per_connection=_IN_FLIGHT,
            **properties,
        )
        self._net.start()
        self._is_closed = False

    async def versions(self, timeout_ms: float) -> Mapping[int, tuple[int, int]]:
        """As :meth:`Transport.versions`."""
        await self._bootstrap(timeout_ms)
        versions: Mapping[int, tuple[int, int]] = self._manager.broker_version_data.api_versions
        return versions

    async def send(
        self,
        api: Api,
        body: Struct,
        *,
        timeout_ms: float,
        to_controller: bool = False,
        max_version: int | None = None,
        repeated: Repeated | None = None,
    ) -> Any:
        """As :meth:`Transport.send`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        version = self._version_of(api, await self.versions(timeout_ms), max_version)
        left_ms = (deadline - loop.time()) * 1000
        request = KafkaPythonRequest(api, version, body, repeated)
        try:
            answer: Answer = await self._run(self._send(request, left_ms, to_controller=to_controller), left_ms)
        except ConnectionFailedError as error:
            if request.was_sent:
                servers = ", ".join(self._servers)
                raise RequestTimeoutError(f"{servers}: the connection was lost before the answer came") from error
            raise
        except ProtocolError as error:
            if request.was_sent:
                raise MalformedMessageError(str(error)) from error
            raise
        except asyncio.CancelledError:
            request.is_abandoned = True
            raise
        if isinstance(answer.body, MalformedMessageError):
            raise answer.body
        return answer.body

    async def _send(self, request: KafkaPythonRequest, timeout_ms: float, *, to_controller: bool) -> Answer:
        """On kafka-python's own loop."""
        deadline = time.monotonic() + timeout_ms / 1000
        self._manager.forget_failures()
        connection = await self._connection(deadline, to_controller=to_controller)
        if request.is_abandoned:
            raise kafka.errors.Cancelled
        left_ms = (deadline - time.monotonic()) * 1000
        answer: Answer = await connection.send_request(request, request_timeout_ms=left_ms)
        return answer

    async def _connection(self, deadline: float, *, to_controller: bool) -> Any:
        """One that is not paused because a broker throttles this client: kafka-python sees to the pause."""
        manager = self._manager
        while True:
            node_id = manager.node_to_ask(to_controller=to_controller)
            paused = [one for one in manager.least_used_connections() if _THROTTLED in one.paused]
            if node_id is not None or not paused:
                connection = manager.get_connection(node_id, timeout_ms=(deadline - time.monotonic()) * 1000)
                await connection
                if _THROTTLED not in connection.paused:
                    return connection
                paused = [connection]
            wait_s = min(one._throttle_time for one in paused) - time.monotonic()  # noqa: SLF001 (it does not say)
            if wait_s > deadline - time.monotonic():
                raise _ThrottledForLongerError(wait_s)
            await self._net.sleep(max(wait_s, _TICK_S))

    async def find_controller(self, timeout_ms: float) -> None:
        """As :meth:`Transport.find_controller`."""
        with contextlib.suppress(KquotaError):
            await self._run(self._manager.cluster.refresh_metadata(), timeout_ms)

    async def _bootstrap(self, timeout_ms: float) -> None:
        if not self._manager.bootstrapped:
            self._manager.forget_failures()
            timeout_ms = min(timeout_ms, BOOTSTRAP_MS)
            await self._run(self._manager.bootstrap_async(timeout_ms, refresh=True), timeout_ms)

    async def _run(self, work: Any, timeout_ms: float) -> Any:
        """Wait here for what kafka-python does on its own loop and thread."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def resolve(put: Callable[[Any], None], value: Any) -> None:
            if not done.done():
                put(value)

        future = self._manager.call_soon(work) if asyncio.iscoroutine(work) else work
        future.add_callback(lambda value: loop.call_soon_threadsafe(resolve, done.set_result, value))
        future.add_errback(lambda error: loop.call_soon_threadsafe(resolve, done.set_exception, error))
        try:
            async with asyncio.timeout(max(0.0, timeout_ms) / 1000 + _GRACE_S):
                return await done
        except TimeoutError:
            raise RequestTimeoutError(f"no answer from {', '.join(self._servers)} within {timeout_ms:.0f} ms") from None
        except kafka.errors.KafkaError as error:
            raise await self._explained(error) from error

    def _version_of(self, api: Api, versions: Mapping[int, tuple[int, int]], max_version: int | None) -> int:
        spoken = versions.get(api.key)
        if spoken is None or spoken[1] < api.min_version:
            raise NotSupportedError(f"the brokers do not speak {api.name}, as every Kafka since 2.6 does")
        if spoken[0] > api.max_version:
            raise NotSupportedError(
                f"the brokers speak {api.name} from version {spoken[0]} on, this kquota up to {api.max_version}: "
                "upgrade kquota"
            )
        if max_version is not None and spoken[0] > max_version:
            raise NotSupportedError(
                f"the brokers speak {api.name} from version {spoken[0]} on, and it was to be {max_version} at most"
            )
        return min(spoken[1], api.max_version if max_version is None else max_version)

    async def _explained(self, error: Exception) -> KquotaError:
        """What it means for who wants to connect, with the text of brokers made printable."""
        last = self._manager.last_failure
        names: list[str] | None = None
        tls = _tls_error(error)
        if tls is not None and last is not None and is_about_names(tls):
            names = await asyncio.to_thread(certificate_names, last.host, last.port)
        found = self._meant(error, last, names)
        return type(found)(printable(str(found)))

    def _meant(self, error: Exception, last: _Failure | None, names: list[str] | None) -> KquotaError:
        servers = ", ".join(self._servers)
        place, address = servers, ""
        if last is not None and last.error is not error and isinstance(error, _ANSWERED):
            last = None  # that was another connection
        if last is not None and last.is_advertised:
            place = f"node {last.node_id} at {last.host}:{last.port}"
            address = (
                f"; the cluster at {servers} gives this address: where clients cannot use it, the broker's "
                "advertised.listeners is wrong"
            )
        if isinstance(error, _NOT_ALLOWED):
            return NotAuthorizedError(f"{place} did not let this client in: {error}")
        tls = _tls_error(error)
        if tls is not None:
            return explained_tls(place, tls, names, address)
        if isinstance(error, kafka.errors.RequestTimedOutError):
            return RequestTimeoutError(f"{servers}: {error}")
        if isinstance(error, kafka.errors.KafkaProtocolError):
            return ProtocolError(f"what answers at {place} does not speak Kafka's protocol: {error}{address}")
        if isinstance(error, _ThrottledForLongerError):
            return UnreachableError(f"nothing was sent to {servers}: {error}")
        if last is None:
            return UnreachableError(f"{servers} cannot be reached: {error}")
        return UnreachableError(f"{place} cannot be reached: {last.error}{self._hint(last.error)}{address}")

    def _hint(self, last: BaseException) -> str:
        """What may be wrong where a connection was made and ended at once."""
        if isinstance(last.__context__, OSError) or "onnect" not in str(last) or _NOT_MADE.search(str(last)):
            return ""
        if self._security_protocol == "PLAINTEXT":
            return "; if it speaks TLS or wants a login on this port, set security.protocol"
        if self._security_protocol == "SASL_PLAINTEXT":
            return "; does it speak SASL_PLAINTEXT on this port?"
        return (
            f"; does it speak {self._security_protocol} on this port, or want a certificate of this client "
            "(ssl.keystore.location)?"
        )

    async def close(self) -> None:
        """As :meth:`Transport.close`."""
        if not self._is_closed:
            self._is_closed = True
            await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self._manager.close()
        self._net.stop()


BOOTSTRAP_MS: Final = 10_000
"""As long as this is tried to reach the first broker: where that takes longer, nobody is there."""

_IN_FLIGHT: Final = 1_000
_THROTTLED: Final = "throttle"
"""Why kafka-python has paused a connection."""
_NOT_MADE: Final = re.compile(r"\d+ E[A-Z]+|DNS|unable to connect|timed out")
"""How kafka-python says that there was no connection at all."""
_TICK_S: Final = 0.001
_GRACE_S: Final = 1.0
"""kafka-python keeps the time itself, and knows more about what happened."""
_NOT_ALLOWED: Final = (
    kafka.errors.SaslAuthenticationFailedError,
    kafka.errors.AuthorizationError,
    kafka.errors.UnsupportedSaslMechanismError,
)
_ANSWERED: Final = (*_NOT_ALLOWED, kafka.errors.KafkaProtocolError)
"""What only a connection that was made can end with."""
