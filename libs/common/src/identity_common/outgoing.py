"""Calls to addresses from configuration, such as those of an identity provider.

Nothing else fetches an address that was typed in. A name is resolved, every address that it resolves to is judged, and
the connection is made to a judged address: a name that resolves to something else a moment later gains nothing.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import httpcore2
import msgspec

from identity_common.uris import is_usable_uri

MAX_ANSWER_BYTES: Final = 1024 * 1024
DEADLINE_S: Final = 5.0
"""For everything: resolving the name, connecting, TLS, and the whole answer."""

_RESOLVING_AT_ONCE: Final = 8
"""In threads of their own, which stay busy for longer than a call if a name server does not answer."""

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# RFC 4291 section 2.4: all else, such as what translators of IPv4 use, is no unicast address of the Internet.
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
# What ``is_global`` of some releases of Python takes for global although it is not, or leads to an IPv4 address.
_NOT_PUBLIC: Final = tuple(
    ip_network(each)
    for each in (
        *("192.0.0.0/24", "192.88.99.0/24"),  # protocol assignments; relays of 6to4
        *("2001::/32", "2002::/16", "3fff::/20"),  # Teredo, 6to4, documentation
    )
)


class OutgoingCallError(Exception):
    """A call got no answer that can be used; the text says why, to people who configured the address."""


class OutgoingAnswer(msgspec.Struct, frozen=True):
    """An answer, whatever its status is; never a redirect."""

    status: int
    content: bytes


class OutgoingCalls:
    """Calls addresses over https, and over http on loopback where that is among the networks.

    Redirects are not followed, and neither proxies nor compression are used.

    Args:
        networks: Networks that may be called besides public addresses, such as ``10.20.0.0/16``.
        context: Which certificates of servers are trusted; by default those of the system, or of ``SSL_CERT_FILE``.
    """

    def __init__(self, *, networks: Sequence[str], context: ssl.SSLContext | None = None) -> None:
        self._networks = tuple(ip_network(each) for each in networks)
        self._context = context or ssl.create_default_context()
        self._resolvers = ThreadPoolExecutor(_RESOLVING_AT_ONCE, thread_name_prefix="outgoing-names")

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> OutgoingAnswer:
        """Read an address.

        Raises:
            OutgoingCallError: There is no usable answer.
        """
        return await self._call("GET", url, headers or {}, None)

    async def post_form(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> OutgoingAnswer:
        """Send a form.

        Raises:
            OutgoingCallError: There is no usable answer; whether the form arrived is not known.
        """
        content = urlencode(form).encode()
        described = {**headers, "Content-Type": "application/x-www-form-urlencoded"}
        return await self._call("POST", url, described, content)

    async def _call(self, method: str, url: str, headers: Mapping[str, str], content: bytes | None) -> OutgoingAnswer:
        if problem := url_problem(url):
            raise OutgoingCallError(problem)
        only_loopback = urlsplit(url).scheme == "http"
        backend = _JudgingBackend(self._networks, self._resolvers, only_loopback=only_loopback)
        sent = [("Accept", "application/json"), ("Accept-Encoding", "identity"), *headers.items()]
        try:
            async with (
                asyncio.timeout(DEADLINE_S),
                httpcore2.AsyncConnectionPool(self._context, network_backend=backend) as pool,
                pool.stream(method, url, headers=sent, content=content) as response,
            ):
                return await _whole(response)
        except TimeoutError as error:
            raise OutgoingCallError(f"It did not answer within {DEADLINE_S:.0f} seconds.") from error
        except ssl.SSLCertVerificationError as error:
            raise OutgoingCallError(f"Its certificate is not valid: {error.verify_message.rstrip('.')}.") from error
        except (OSError, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
            if isinstance(cause := error.__cause__ or error.__context__, ssl.SSLCertVerificationError):
                raise OutgoingCallError(f"Its certificate is not valid: {cause.verify_message.rstrip('.')}.") from error
            raise OutgoingCallError("It cannot be reached.") from error


def url_problem(url: str) -> str | None:
    """Return why an address cannot be called, whatever its name resolves to; None if it can."""
    if not is_usable_uri(url) or not urlsplit(url).hostname:
        return "It must be an absolute URL without user information."
    if urlsplit(url).scheme not in {"https", "http"}:
        return "It must begin with https://."
    if "#" in url:
        return "It must have no fragment."
    return None


def is_public(address: Address) -> bool:
    """Return whether an address belongs to the public Internet, and does not stand for one that does not."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return is_public(address.ipv4_mapped)
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    if any(address in network for network in _NOT_PUBLIC):
        return False
    return address.is_global and not address.is_multicast


def network_problem(text: str) -> str | None:
    """Return why a text names no network; None if it does."""
    try:
        ip_network(text)
    except ValueError as error:
        return str(error)
    return None


async def _whole(response: httpcore2.Response) -> OutgoingAnswer:
    if 300 <= response.status < 400:
        raise OutgoingCallError(f"It answers with a redirect (status {response.status}); name the final address.")
    if any(name.lower() == b"content-encoding" and value.lower() != b"identity" for name, value in response.headers):
        raise OutgoingCallError("It answers in a compressed form, although none was asked for.")
    content = bytearray()
    async for chunk in response.aiter_stream():
        content += chunk
        if len(content) > MAX_ANSWER_BYTES:
            raise OutgoingCallError(f"Its answer is longer than {MAX_ANSWER_BYTES // 1024} KiB.")
    return OutgoingAnswer(response.status, bytes(content))


class _JudgingBackend(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that were judged after the name was resolved."""

    def __init__(self, networks: tuple[Network, ...], resolvers: Executor, *, only_loopback: bool) -> None:
        self._networks = networks
        self._resolvers = resolvers
        self._only_loopback = only_loopback
        self._connections = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        refused: Exception | None = None
        for address in await self._judged(host, port):
            try:
                return await self._connections.connect_tcp(str(address), port, timeout, local_address, socket_options)
            except (httpcore2.NetworkError, httpcore2.TimeoutException) as error:
                refused = error
        raise refused or httpcore2.ConnectError("no address")

    async def _judged(self, host: str, port: int) -> list[Address]:
        resolve = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._resolvers, resolve)
        except (socket.gaierror, UnicodeError) as error:
            raise OutgoingCallError(f"The name {host} cannot be resolved.") from error
        addresses = dict.fromkeys(_address(each) for each in found)
        judged = [each for each in addresses if self._may_be_called(each)]
        if not judged and self._only_loopback:
            raise OutgoingCallError("It must begin with https://.")
        if not judged:
            raise OutgoingCallError(
                f"{host} is no public address. OUTGOING_NETWORKS lists the other networks that may be called."
            )
        return judged

    def _may_be_called(self, address: Address) -> bool:
        if self._only_loopback and not address.is_loopback:
            return False
        return is_public(address) or any(address in network for network in self._networks)


def _address(found: tuple[Any, ...]) -> Address:
    """Return the address of an entry of ``getaddrinfo``; one that is mapped into IPv6 is judged as what it is."""
    address = ip_address(found[4][0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped
