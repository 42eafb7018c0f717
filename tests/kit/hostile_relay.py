"""Hostile clients and brokers of the gateway, by seed, on its own protocols without sockets.

Both send valid frames that were changed, noise, and sizes that cannot be, cut anywhere. :func:`attack` checks after
each frame that the gateway is as it should be.
"""

from __future__ import annotations

import asyncio
import struct
import time
import traceback
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from kquota.errors import KquotaError
from kquota.gateway.identity.connection_identity import Identities
from kquota.gateway.relay.actions import ACTIONS, Kind
from tests.kit.relayed import Relayed, answer, request
from tests.kit.relayed_exchanges import Exchange, any_exchanges
from tests.kit.sasl_exchanges import authenticate_request, handshake_request

__all__ = ["MOST_KEPT_BYTES", "Attack", "attack"]

MOST_KEPT_BYTES: Final = 20 * 2**20
"""A request or an answer that is read whole, of 16 MiB at most, and what else there may be."""
_EXTREMES: Final = (-1, 0, 1, 9, 10, 2**31 - 1, -(2**31), 2**24 + 1, 100 * 2**20 + 1)
_WITNESS_EVERY: Final = 200


@dataclass
class Attack:
    """What was seen."""

    frames: int = 0
    connections: int = 0
    refused: int = 0
    """Connections that the gateway closed."""
    closed: dict[str, int] = field(default_factory=dict)
    longest_ms: float = 0.0
    """Of CPU time that one frame took."""
    most_kept: int = 0
    mistakes: list[str] = field(default_factory=list)
    """What should never be."""

    def __str__(self) -> str:
        reasons = ", ".join(f"{name} {count:,}" for name, count in sorted(self.closed.items()))
        return (
            f"{self.frames:,} frames on {self.connections:,} connections, of which the gateway closed {self.refused:,} "
            f"({reasons}); at most {self.most_kept / 2**20:.1f} MiB kept for a connection, {self.longest_ms:.0f} ms of "
            f"CPU for a frame; {len(self.mistakes)} mistakes"
        )


async def attack(seed: int, count: int) -> Attack:
    """Send so many frames. Beside each gateway's hostile connections there is one that must not notice."""
    random = Random(seed)
    found = Attack()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.mistakes.append(str(context)))
    gateways = [Relayed(), Relayed(), Relayed(Identities("SASL_PLAINTEXT"))]
    for one in gateways:
        one.topology.learn((node_id, f"b{node_id}", 9092) for node_id in (1, 2, 3))
        one.limit("controller_mutation_rate", 1e9, client_id="c")
    for key in ("producer_byte_rate", "consumer_byte_rate"):
        gateways[0].limit(key, 1e12, client_id="c")
        gateways[1].limit(key, 1.0, client_id="c")
    witnesses = [Relayed(beside=one) for one in gateways[:2]]
    for one in witnesses:
        await one.connect()
    next_witness = 0
    while found.frames < count and len(found.mistakes) < 100:
        gateway = random.choice(gateways)
        relayed = Relayed(beside=gateway)
        await relayed.connect()
        found.connections += 1
        try:
            await _Connection(relayed, random, found, is_login=gateway is gateways[2]).run()
        except Exception as error:  # noqa: BLE001 (what comes out of a callback is what is looked for)
            found.mistakes.append(f"seed {seed}, connection {found.connections}: {error!r}")
        if found.frames >= next_witness:
            next_witness += _WITNESS_EVERY
            for number, one in enumerate(witnesses):
                _ask(one, found.frames, f"seed {seed}: witness {number}", found)
    return found


def _ask(witness: Relayed, number: int, name: str, found: Attack) -> None:
    asked, answered = request(12, 3, number, b"alive", "witness"), answer(number, bytes(6))
    witness.client_sends(asked)
    witness.broker_sends(answered)
    if (witness.to_broker.take(), witness.to_client.take()) != (asked, answered):
        found.mistakes.append(f"{name} after {number} frames")


class _Connection:
    """One that is hostile from one of its ends."""

    def __init__(self, relayed: Relayed, random: Random, found: Attack, *, is_login: bool) -> None:
        self.relayed = relayed
        self.random = random
        self.found = found
        self.is_login = is_login

    async def run(self) -> None:
        """Until it is closed, or enough."""
        relayed, random = self.relayed, self.random
        is_broker_hostile = random.random() < 0.4
        for exchange in self._exchanges(random.choice((2, 5, 20))):
            if is_broker_hostile:
                await self._give(relayed.client, exchange.request, relayed.to_client)
                if exchange.answer is not None:
                    await self._give(relayed.broker, self._hostile(exchange.answer), relayed.to_broker)
            else:
                await self._give(relayed.client, self._hostile(exchange.request), relayed.to_client)
                if exchange.answer is not None and random.random() < 0.7:
                    await self._give(relayed.broker, exchange.answer, relayed.to_broker)
            if random.random() < 0.05:
                await asyncio.sleep(1e5)  # who waited does not any more
            self.found.frames += 1
            if relayed.to_client.has_closed or relayed.to_broker.has_closed:
                break
        await self._leave()

    async def _leave(self) -> None:
        """End in some way, and see that nothing is left."""
        relayed, random = self.relayed, self.random
        was_refused = relayed.to_client.has_closed
        match random.randrange(3):
            case 0:
                relayed.client.eof_received()
            case 1:
                relayed.client.end()
            case _:
                pass
        await relayed.settle(4)
        if was_refused and not relayed.has_ended:
            self.found.mistakes.append(f"connection {self.found.connections}: only one side was closed")
        relayed.close()
        await relayed.settle(4)
        [failure] = relayed.listener.failures
        if was_refused:
            self.found.refused += 1
            name = type(failure).__name__
            self.found.closed[name] = self.found.closed.get(name, 0) + 1
        if failure is not None and not isinstance(failure, KquotaError | OSError):
            where = traceback.extract_tb(failure.__traceback__)[-1:]
            self.found.mistakes.append(f"connection {self.found.connections}: {failure!r} {where}")

    def _exchanges(self, count: int) -> list[Exchange]:
        random = self.random
        kinds = random.choice((tuple(Kind), (Kind.MUTATION, Kind.API_VERSIONS), (Kind.BROKERS, Kind.PRODUCE)))
        exchanges = any_exchanges(random, count, kinds, largest=300)
        if self.is_login:
            steps = (handshake_request("PLAIN", random.randrange(2)), authenticate_request(b"\0alice\0secret"))
            logins = [Exchange(_framed(step), answer(random.randrange(9), bytes(12)), lambda _: None) for step in steps]
            exchanges = logins + exchanges
        return exchanges

    async def _give(self, protocol: Any, data: bytes, end: Any) -> None:
        """Let a protocol receive something, in pieces, unless it is closed; and see what it makes of it."""
        if protocol is None or end.has_closed:
            return
        largest = self.random.choice((1, 10, 100_000))
        busy_s = 0.0
        while data and not end.has_closed:
            size = self.random.randrange(1, largest + 1)
            began = time.thread_time()
            protocol.data_received(data[:size])
            busy_s += time.thread_time() - began
            data = data[size:]
        began = time.thread_time()
        await self.relayed.settle(4)
        self.found.longest_ms = max(self.found.longest_ms, 1000 * (busy_s + time.thread_time() - began))
        self.found.most_kept = max(self.found.most_kept, self._kept())
        self.relayed.to_broker.take()
        self.relayed.to_client.take()

    def _kept(self) -> int:
        client, broker = self.relayed.client, self.relayed.broker
        found = [client._rest, client._whole or b""]
        if broker is not None:
            found += [broker._rest, broker._whole or b""]
        return sum(len(one) for one in found)

    def _hostile(self, frame: bytes) -> bytes:
        random = self.random
        changed = bytearray(frame)
        match random.randrange(9):
            case 0:
                return frame
            case 1:
                return random.randbytes(random.choice((1, 4, 20, 300)))
            case 2:
                struct.pack_into(">i", changed, 0, random.choice(_EXTREMES))
            case 3:  # what comes next is taken for the rest of it
                del changed[random.randrange(len(changed)) :]
            case 4:  # another size, and nothing missing
                at = random.randrange(len(changed) + 1)
                changed[at : at + random.randrange(5)] = random.randbytes(random.randrange(5))
                if len(changed) >= 4:
                    struct.pack_into(">i", changed, 0, len(changed) - 4)
            case 5:
                key = random.choice(tuple(ACTIONS)) if random.random() < 0.7 else random.getrandbits(32)
                if len(changed) >= 8:
                    struct.pack_into(">I", changed, 4, key)
            case _:
                for _ in range(random.randrange(1, 6)):
                    at = random.randrange(4, len(changed))
                    changed[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        return bytes(changed)


def _framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload
