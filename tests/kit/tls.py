"""Certificates, and TLS in front of a server that has none."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

PASSWORD: Final = "store-secret"
_PEM: Final = serialization.Encoding.PEM
Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class Identity:
    """A key with its certificate."""

    key: Key
    certificate: x509.Certificate

    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(_PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        return self.key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, encryption).decode()

    def pkcs12(self, password: str = PASSWORD) -> bytes:
        encryption = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"own", self.key, self.certificate, None, encryption)

    def write_pem(self, path: Path, password: str | None = None) -> Path:
        path.write_text(self.key_pem(password) + self.certificate_pem())
        return path


class Authority:
    """Issues certificates for as long as a test lasts."""

    def __init__(self) -> None:
        self._own = _issue("authority", None)

    def certificate_pem(self) -> str:
        return self._own.certificate_pem()

    def trust_store(self, password: str = PASSWORD) -> bytes:
        """The authority's certificate in PKCS12, as keytool writes trust stores."""
        trusted = pkcs12.PKCS12Certificate(self._own.certificate, b"authority")
        encryption = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_java_truststore([trusted], encryption)

    def issue(self, name: str, *, hosts: tuple[str, ...] = (), has_expired: bool = False) -> Identity:
        return _issue(name, self._own, hosts, has_expired=has_expired)


def _issue(name: str, issuer: Identity | None, hosts: tuple[str, ...] = (), *, has_expired: bool = False) -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(minutes=-1 if has_expired else 24 * 60))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if hosts:
        names: list[x509.GeneralName] = []
        for host in hosts:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Identity(key, builder.sign(key if issuer is None else issuer.key, hashes.SHA256()))


class Relay:
    """What a TLS listener got, handed on as plain text to `upstream` once that is known."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.upstream: tuple[str, int] | None = None


@contextlib.contextmanager
def tls_relay(server: Identity, folder: Path, *, clients: Authority | None = None) -> Iterator[Relay]:
    """TLS on a free port of 127.0.0.1; with `clients` only those that the authority knows are let in."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.write_pem(folder / "server.pem"))
    if clients is not None:
        context.load_verify_locations(cadata=clients.certificate_pem())
        context.verify_mode = ssl.CERT_REQUIRED
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="tls-relay", daemon=True)
    thread.start()
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    def started(task: asyncio.Task[None] | None) -> None:
        assert task is not None
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        started(asyncio.current_task())
        writers.append(writer)
        assert relay.upstream is not None
        up_reader, up_writer = await asyncio.open_connection(*relay.upstream)
        writers.append(up_writer)
        for source, sink in ((reader, up_writer), (up_reader, writer)):
            started(asyncio.create_task(_copy(source, sink)))

    async def start() -> asyncio.Server:
        return await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)

    async def stop() -> None:
        listening.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)

    listening = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
    relay = Relay(listening.sockets[0].getsockname()[1])
    try:
        yield relay
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while part := await source.read(65536):
            sink.write(part)
            await sink.drain()
    except OSError:
        pass
    finally:
        sink.close()
