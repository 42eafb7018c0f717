"""The beginning of a request: whose it is, and what is counted with it.

The requests of a connection mostly begin alike, but for their size and correlation id. So what a beginning means is
found out once, and remembered until a request begins otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kquota.errors import MalformedMessageError
from kquota.gateway.actions import Action, Kind
from kquota.gateway.request_fields import fetch_max_bytes_at, produce_acks_at, request_header_end
from kquota.metering.meters import RateMeter

if TYPE_CHECKING:
    from kquota.gateway.enforcement import Client, Enforcement

__all__ = ["BYTES_IN", "BYTES_OUT", "HEADER_BYTES", "NOTHING", "RequestHead", "read_head"]

HEADER_BYTES: Final = 14
"""Of a request's header up to the client id, the size included."""
HEAD_AT: Final = 12
"""Where the client id begins, with its length: what is before it is another one with each request, or looked at."""
NOTHING, BYTES_IN, BYTES_OUT = range(3)
"""What is counted: for produce the request, for fetch the answer."""
_NO_ACKS: Final = bytes(2)
_PASSING: Final = frozenset({Kind.PASS, Kind.MUTATION})
_NODE_ENDPOINTS_SINCE: Final = 10


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
        self.counts = NOTHING
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


def read_head(frame: bytes, api: int, action: Action, client: Client | None) -> RequestHead | None:
    """The head of a request; None while there is too little of it.

    :param frame: its beginning, up to the end of the client id at least, or all of it.
    :raises MalformedMessageError: these bytes are no such request.
    """
    size = int.from_bytes(frame[:4], "big")
    client_id_ends = HEADER_BYTES + max(int.from_bytes(frame[HEAD_AT:HEADER_BYTES], "big", signed=True), 0)
    head = RequestHead(api, bytes(frame[HEAD_AT:client_id_ends]), action, client)
    if action.kind is Kind.PRODUCE:
        acks_at = produce_acks_at(frame, action)
        if acks_at is None:
            return None
        head.end = acks_at + 2
        head.raw = bytes(frame[HEAD_AT : head.end])
        head.passes = None if action.version >= _NODE_ENDPOINTS_SINCE else True
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
    return head
