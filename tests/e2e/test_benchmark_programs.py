"""The benchmarks' helper programs in C: what they send are requests and answers as kio reads and writes them."""

from __future__ import annotations

import contextlib
import importlib
import socket
import struct
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pytest

from benchmarks.bench_gateway import CLIENT_ID, Case, Load, Running, listening
from benchmarks.c_programs import CompilerMissingError, compiled
from kquota.admin import QuotaAdmin
from kquota.quotas import ClientQuotaFilter
from tests.kit.not_run import not_run
from tests.kit.wire_values import kio_bytes, kio_read

TAGS: Final = b"\0"


@pytest.fixture(scope="module")
def load() -> Load:
    try:
        return Load()
    except CompilerMissingError as error:
        not_run("CC", str(error))


@pytest.fixture
def fake_broker(load: Load) -> Iterator[Running]:
    with listening([str(compiled("fake_broker")), "0"]) as running:
        yield running


def connected(running: Running) -> socket.socket:
    host, _, port = running.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def request(key: int, version: int, correlation_id: int, body: bytes = b"") -> bytes:
    payload = struct.pack(">hhih", key, version, correlation_id, 4) + b"test" + TAGS + body
    return struct.pack(">i", len(payload)) + payload


def fetch_body(max_bytes: int) -> bytes:
    """As far as the fake broker reads it."""
    return struct.pack(">iiii", -1, 500, 1, max_bytes)


def frame(connection: socket.socket) -> bytes:
    """The next frame, without its size."""
    [size] = struct.unpack(">i", exactly(connection, 4))
    return exactly(connection, size)


def exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        assert part, "the connection ended"
        found += part
    return found


def read_by_kio(name: str, version: int, part: str, data: bytes) -> Any:
    """The message, which is all of the data: kio writes the same bytes again."""
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{part}")
    kind = getattr(module, "".join(word.title() for word in name.split("_")) + part.title())
    found = kio_read(kind, data)
    assert kio_bytes(found) == data
    return found


@pytest.mark.parametrize(
    "key, name, versions",
    [
        (0, "produce", range(9, 13)),
        (3, "metadata", range(9, 13)),
        (18, "api_versions", range(5)),
        (48, "describe_client_quotas", range(2)),
        (60, "describe_cluster", range(2)),
    ],
)
def test_the_fake_brokers_answers_are_as_kio_writes_them(
    fake_broker: Running, key: int, name: str, versions: range
) -> None:
    with connected(fake_broker) as connection:
        for version in versions:
            connection.sendall(request(key, version, 1000 + version))
            answer = frame(connection)
            assert answer[:4] == struct.pack(">i", 1000 + version)
            has_tags = key != 18 and (key, version) != (48, 0)
            assert not has_tags or answer[4:5] == TAGS
            found = read_by_kio(name, version, "response", answer[5 if has_tags else 4 :])
            assert not getattr(found, "error_code", 0)


def test_a_fetch_is_answered_with_as_many_bytes_as_it_asks_for(fake_broker: Running) -> None:
    with connected(fake_broker) as connection:
        for asked in (100, 1_000, 64_000, 1_000_000):
            connection.sendall(request(1, 12, 5, fetch_body(asked)))
            answer = frame(connection)
            assert 4 + len(answer) in {asked, asked - 1}
            found = read_by_kio("fetch", 12, "response", answer[5:])
            assert len(found.responses[0].partitions[0].records) > asked - 100


def test_pipelined_requests_are_answered_in_order_wherever_they_are_cut(fake_broker: Running) -> None:
    kinds = [(0, b"\0" * 3000), (1, fetch_body(700_000)), (0, b""), (1, fetch_body(100)), (18, b"")]
    sent = b"".join(request(key, 12 if key < 18 else 4, number, body) for number, (key, body) in enumerate(kinds * 10))
    with connected(fake_broker) as connection:
        for cut in range(0, len(sent), 1_237):
            connection.sendall(sent[cut : cut + 1_237])
        answered = [struct.unpack_from(">i", frame(connection))[0] for _ in range(50)]
    assert answered == list(range(50))


def test_what_the_fake_broker_does_not_know_ends_the_connection(fake_broker: Running) -> None:
    for bad in (request(0, 8, 1), request(22, 0, 1), struct.pack(">ii", 0, 0), b"GET / HTTP/1.1\r\n\r\n"):
        with connected(fake_broker) as connection:
            connection.sendall(bad)
            assert connection.recv(1) == b""


def test_newer_versions_of_api_versions_are_told_which_are_spoken(fake_broker: Running) -> None:
    """As KIP-511 wants it: in version 0."""
    with connected(fake_broker) as connection:
        connection.sendall(request(18, 5, 7))
        found = read_by_kio("api_versions", 0, "response", frame(connection)[4:])
    assert found.error_code == 35
    assert {one.api_key: (one.min_version, one.max_version) for one in found.api_keys}[0] == (9, 12)


def test_quota_admin_takes_it_for_a_cluster_without_quotas(fake_broker: Running) -> None:
    with QuotaAdmin(fake_broker.address) as admin:
        cluster = admin.cluster()
        assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [fake_broker.address]
        assert [(one.topic, one.partition) for one in cluster.partitions] == [("bench", 0)]
        assert admin.describe_client_quotas(ClientQuotaFilter.all()).entities() == {}


@contextlib.contextmanager
def requested(load: Load, case: Case) -> Iterator[tuple[socket.socket, subprocess.Popen[str]]]:
    """The load's first connection, as a broker has it, and its process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        running = Running("{}:{}".format(*listener.getsockname()), None)
        command = load.command(running, case, 5, 5)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            try:
                connection, _ = listener.accept()
                connection.settimeout(30)
                with connection:
                    yield connection, process
            finally:
                process.kill()


@pytest.mark.parametrize("kind", ["produce", "fetch"])
def test_the_load_measures_what_it_was_asked_for(fake_broker: Running, load: Load, kind: str) -> None:
    case = Case(kind=kind, frame_bytes=64_000, connections=3, in_flight=5)
    found = load.sample(fake_broker, case, warm_up_s=0.01, seconds=0.05)
    assert sum(count for _, count in found.histogram) == found.pairs
    assert 64_000 <= found.bytes_per_pair < 64_300


@pytest.mark.parametrize("frame_bytes", [100, 1_000, 64_000])
@pytest.mark.parametrize("key, name", [(0, "produce"), (1, "fetch")])
def test_the_loads_requests_are_as_kio_writes_them(load: Load, key: int, name: str, frame_bytes: int) -> None:
    case = Case(kind=name, frame_bytes=frame_bytes, connections=1, in_flight=2)
    with requested(load, case) as (connection, _):
        for correlation_id in range(2):
            sent = frame(connection)
            assert name != "produce" or 4 + len(sent) in {frame_bytes, frame_bytes - 1}
            expected = struct.pack(">hhih", key, 12, correlation_id, len(CLIENT_ID)) + CLIENT_ID.encode() + TAGS
            assert sent.startswith(expected)
            read_by_kio(name, 12, "request", sent[len(expected) :])


@pytest.mark.parametrize(
    "answers, why",
    [
        ([struct.pack(">iiB", 5, 1, 0)], "an answer with another correlation id"),
        ([struct.pack(">iiB", 5, 0, 0), struct.pack(">iih", 6, 1, 0)], "answers differ in size"),
        ([struct.pack(">iiB", 5, 0, 0)], "the connection ended"),
    ],
)
def test_the_load_ends_where_an_answer_is_wrong(load: Load, answers: list[bytes], why: str) -> None:
    with requested(load, Case(kind="produce", frame_bytes=100, connections=1, in_flight=1)) as (connection, process):
        for answer in answers:
            frame(connection)
            connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)
        assert process.wait(30) == 1
        assert process.stderr is not None
        assert why in process.stderr.read()
