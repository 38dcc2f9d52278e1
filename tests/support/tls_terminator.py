"""TLS in front of a server that has none: the client's side of each protocol is as with a server that has it."""

import asyncio
import datetime as dt
import ipaddress
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.processes import free_port

Greeting = Callable[[asyncio.StreamReader, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""What is said in clear before the handshake; given the streams from the server, and from and to the client."""


async def postgres_greeting(
    _: asyncio.StreamReader, client: asyncio.StreamReader, to_client: asyncio.StreamWriter
) -> None:
    """Agree to the SSLRequest."""
    assert await client.readexactly(8) == bytes.fromhex("0000000804d2162f")
    to_client.write(b"S")


async def nats_greeting(server: asyncio.StreamReader, _: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
    """Ask for TLS in the server's INFO."""
    information = await server.readline()
    to_client.write(information.replace(b"INFO {", b'INFO {"tls_required":true,', 1))


class Certificate:
    """A certificate for ``localhost`` that is its own authority.

    Attributes:
        path: The certificate as PEM.
        context: Of a server that has it.
    """

    def __init__(self, directory: Path, name: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = dt.datetime.now(dt.UTC)
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]
        certificate = (
            x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(key, hashes.SHA256())
        )
        self.path = directory / f"{name}.crt"
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        private = directory / f"{name}.key"
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.path, private)


class TlsTerminator:
    """Forwards what it decrypts to the server of a URL; an async context manager.

    Args:
        url: The URL of the server.
        greeting: What comes before the handshake, if anything does.
        certificate: What clients are shown.

    Attributes:
        handshakes: How many clients have completed one.
    """

    def __init__(self, url: str, greeting: Greeting | None, certificate: Certificate) -> None:
        self._target = urlsplit(url)
        self._greeting = greeting
        self._context = certificate.context
        self._port = free_port()
        self.handshakes = 0

    def url(self, scheme: str) -> str:
        """Return the URL for clients, with the same credentials."""
        credentials, _, _ = self._target.netloc.rpartition("@")
        return self._target._replace(scheme=scheme, netloc=f"{credentials}@localhost:{self._port}").geturl()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self._port, ssl=None if self._greeting else self._context
        )
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._server.close()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection(self._target.hostname, self._target.port)
        try:
            if self._greeting is not None:
                await self._greeting(server, client, to_client)
                await to_client.start_tls(self._context)
            self.handshakes += 1
            await asyncio.gather(_pump(client, to_server), _pump(server, to_client))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            to_server.close()
            to_client.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
