"""The beginning of a request: whose it is, and what is counted with it.

The requests of a connection mostly begin alike, but for their size and correlation id. So what a beginning means is
found out once, and remembered until a request begins otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias

from kquota.errors import FrameSizeError, MalformedMessageError, UnsupportedVersionError
from kquota.gateway.identity.sasl_observer import check_first_frame
from kquota.gateway.relay.actions import ACTIONS, Action, Kind
from kquota.gateway.relay.broker_addresses import NODE_ENDPOINTS_SINCE
from kquota.gateway.relay.request_fields import fetch_max_bytes_at, produce_acks_at, request_header_end
from kquota.metering.meters import RateMeter, Throttle
from kquota.wire.apis import API_VERSIONS

if TYPE_CHECKING:
    from kquota.gateway.quotas.enforcement import Client, Enforcement

__all__ = [
    "BEFORE_LOGIN",
    "BYTES_IN",
    "BYTES_OUT",
    "HEADER",
    "HEADER_BYTES",
    "HEAD_AT",
    "Expected",
    "RequestHead",
    "read_head",
]

HEADER: Final = Struct(">iIih")
"""Size, API key and version as one number, correlation id, length of the client id."""
HEADER_BYTES: Final = HEADER.size
"""Of a request's header up to the client id, the size included."""
HEAD_AT: Final = 12
"""Where the client id begins, with its length: what is before it is another one with each request, or looked at."""
_NOTHING, BYTES_IN, BYTES_OUT = range(3)
"""What is counted: for produce the request, for fetch the answer."""
_NO_ACKS: Final = bytes(2)
_PASSING: Final = frozenset({Kind.PASS, Kind.MUTATION})
_MAYBE_WHOLE: Final = frozenset(
    {Kind.SASL_HANDSHAKE, Kind.SASL_AUTHENTICATE, Kind.API_VERSIONS, Kind.MUTATION, Kind.QUOTAS}
)
BEFORE_LOGIN: Final = frozenset({Kind.SASL_HANDSHAKE, Kind.SASL_AUTHENTICATE, Kind.API_VERSIONS})
_ACTIONS: Final = dict(ACTIONS)
_SMALLEST_REQUEST: Final = 10


class RequestHead:
    """What requests have in common whose API, version, client id and, for produce, acks are the same."""

    __slots__ = (
        "action",
        "api",
        "client",
        "counts",
        "end",
        "has_answer",
        "is_whole",
        "max_bytes_at",
        "meter",
        "most",
        "passes",
        "raw",
        "since",
        "used",
    )

    def __init__(self, api: int, raw: bytes, action: Action, client: Client | None) -> None:
        """Take key and version as one number, the bytes from the client id on, and who is charged."""
        self.api = api
        self.raw = raw
        self.end = HEAD_AT + len(raw)
        self.action = action
        self.client = client
        self.counts = _NOTHING
        self.has_answer = True
        self.is_whole: bool | None = None
        """Whether it is read whole, where that depends on the quotas of the moment; None where it never is."""
        self.used = 0
        """How many requests began so, and are not counted yet."""
        self.passes: bool | None = action.kind in _PASSING
        """Whether the answer is passed on as it is; None where its end says so."""
        self.max_bytes_at = 0
        """Where a fetch says how much it wants."""
        self.meter: RateMeter | None = None
        """What its bytes are counted on."""
        self.most: int | None = None
        """The most that a fetch may ask for; None for as much as it likes."""
        self.since = -1
        """Since which change of quotas these two hold."""

    def look_up(self, enforcement: Enforcement) -> None:
        """Find out what is counted where, under the quotas as they are now.

        A callback may give another answer each time, so it is asked with every request, as a broker does.
        """
        manager = enforcement.managers.produce if self.counts == BYTES_IN else enforcement.managers.fetch
        client = self.client
        if client is None:
            self.since = manager.changes
            return
        self.meter = manager.meter(client.user, client.client_id)
        self.most = enforcement.max_fetch_bytes(client) if self.counts == BYTES_OUT else None
        self.since = manager.changes if manager.keeps_meters else -1


Expected: TypeAlias = "tuple[int, RequestHead, int, Throttle | None]"
"""A request under way, and what its answer will need: its correlation id, its head, when it was sent (milliseconds of
the event loop's clock, where that matters), and what a quota makes it wait for from then on.
"""


def read_head(data: bytes, at: int, max_bytes: int, client_of: Callable[[bytes], Client | None]) -> RequestHead | None:
    """The head of a request; None while there is too little of it.

    :param data: has the request from `at` on, with its size; 14 bytes of it at least.
    :param max_bytes: the largest size that is announced.
    :param client_of: gives who is charged, by the client id. It is not asked about logins.
    :raises ProtocolError: it is no request that is passed on, or what `client_of` raises.
    """
    size, api, _, id_bytes = HEADER.unpack_from(data, at)
    action = _action(api, size, max_bytes, bytes(data[at : at + 16]))
    body = at + HEADER_BYTES + max(0, id_bytes)
    if body > at + 4 + size:
        raise MalformedMessageError("the client id ends after the request")
    if body > len(data):
        return None
    client = None if action.kind in BEFORE_LOGIN else client_of(data[at + HEADER_BYTES : body])
    head = RequestHead(api, bytes(data[at + HEAD_AT : body]), action, client)
    frame = data[at : at + 4 + size]
    if action.kind is Kind.PRODUCE:
        acks_at = produce_acks_at(frame, action)
        if acks_at is None:
            return None
        head.end = acks_at + 2
        head.raw = bytes(frame[HEAD_AT : head.end])
        head.passes = None if action.version >= NODE_ENDPOINTS_SINCE else True
        head.counts, head.has_answer = BYTES_IN, frame[acks_at : acks_at + 2] != _NO_ACKS
    elif action.kind is Kind.FETCH:
        head.counts = BYTES_OUT
        try:
            head.max_bytes_at = fetch_max_bytes_at(frame, action) or 0
            if action.is_flexible:  # the field comes after the header's tags, which need not be the same each time
                head.end = request_header_end(frame, action)
                head.raw = bytes(frame[HEAD_AT : head.end])
        except MalformedMessageError:
            if len(frame) == size + 4:
                raise
            return None
    elif action.kind in _MAYBE_WHOLE:
        head.is_whole = False
    return head


def _action(api: int, size: int, max_bytes: int, begin: bytes) -> Action:
    """What to do with a request. A later version of ApiVersions is as the first one: every broker answers it."""
    action = _ACTIONS.get(api)
    if action is None:
        check_first_frame(begin[4:])
        if api >> 16 == API_VERSIONS.key:
            action = ACTIONS[API_VERSIONS.key << 16]
    if not _SMALLEST_REQUEST <= size <= max_bytes:
        raise FrameSizeError(size, max_bytes, begin)
    if action is None:
        raise UnsupportedVersionError(api >> 16, api & 0xFFFF, 0)
    return action
