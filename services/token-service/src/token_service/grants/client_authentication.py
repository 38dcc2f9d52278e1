"""Client authentication at the token endpoint (RFC 6749 section 2.3).

Machine-to-machine: ``client_secret_basic`` or ``client_secret_post``. Traditional: ``client_secret_basic`` and, if its
settings say so, ``client_secret_post``. Native and SPA: ``client_id`` alone. Every failure gets the same answer, or 429
if there were too many (``FailedAuthentications``).
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final, Literal
from urllib.parse import unquote_plus

import msgspec

from identity_common.clock import Clock, now_ms
from identity_common.wire.events import ApplicationState, ApplicationType
from token_service.directory import Directory
from token_service.grants.failed_authentications import FailedAuthentications
from token_service.grants.form import FormParameters
from token_service.grants.oauth_errors import invalid_client, invalid_request

Method = Literal["client_secret_basic", "client_secret_post", "none"]

METHODS: Final[dict[ApplicationType, frozenset[Method]]] = {
    "MachineToMachine": frozenset({"client_secret_basic", "client_secret_post"}),
    "Traditional": frozenset({"client_secret_basic"}),
    "Native": frozenset({"none"}),
    "SPA": frozenset({"none"}),
}
"""Methods by application type, before an application's own setting adds ``client_secret_post``."""


class ClientCredentials(msgspec.Struct, frozen=True):
    """The credentials of a request, not verified yet.

    Attributes:
        client_id: As claimed.
        method: How they were presented.
        secret_sha256: Hexadecimal SHA-256 of the secret; None with the method ``none``.
    """

    client_id: str
    method: Method
    secret_sha256: str | None = None


def read_credentials(authorization: Sequence[str], parameters: FormParameters) -> ClientCredentials:
    """Return the credentials of a request.

    Args:
        authorization: The values of its Authorization headers.
        parameters: From its form.

    Raises:
        OAuthError: ``invalid_request`` for two methods at once or two different client ids; ``invalid_client``
            without credentials, and for an unsupported method.
    """
    client_id, secret = parameters.get("client_id"), parameters.get("client_secret")
    assertion = parameters.get("client_assertion") or parameters.get("client_assertion_type")
    if len(authorization) > 1:
        raise invalid_request("the Authorization header is repeated")
    if [bool(authorization), secret is not None, assertion is not None].count(True) > 1:
        raise invalid_request("the client uses two authentication methods at once")
    if authorization:
        header_id, header_secret = _parse_basic(authorization[0])
        if client_id is not None and client_id != header_id:
            raise invalid_request("client_id differs from the Authorization header")
        return ClientCredentials(header_id, "client_secret_basic", _sha256(header_secret))
    if client_id is None or assertion is not None:
        raise invalid_client()
    if secret is not None:
        return ClientCredentials(client_id, "client_secret_post", _sha256(secret))
    return ClientCredentials(client_id, "none")


def _parse_basic(header: str) -> tuple[str, str]:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        raise invalid_client()
    try:
        client_id, colon, secret = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise invalid_client() from None
    if not colon or not client_id or not secret:
        raise invalid_client()
    return unquote_plus(client_id), unquote_plus(secret)


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def methods_of(client: ApplicationState) -> frozenset[Method]:
    """Return the authentication methods of a client.

    Enabling ``client_secret_post`` does not disable ``client_secret_basic``: the server must support it for every
    client with a secret (RFC 6749 section 2.3.1), and an application can switch without downtime.
    """
    return METHODS[client.type] | ({client.token_endpoint_auth_method} if client.type == "Traditional" else set())


def is_authentic(client: ApplicationState | None, credentials: ClientCredentials, *, now: int) -> bool:
    """Return whether the credentials belong to this client.

    Args:
        client: The application with the claimed id; none if there is no such application.
        credentials: As presented.
        now: Milliseconds since the epoch; expired secrets do not match.
    """
    if client is None or credentials.method not in methods_of(client):
        return False
    if credentials.secret_sha256 is None:
        return True
    matches = False
    for secret in client.secrets:
        live = secret.expires_at is None or secret.expires_at > now
        matches |= live and hmac.compare_digest(secret.sha256, credentials.secret_sha256)
    return matches


class ClientAuthenticator:
    """Verifies credentials against the directory."""

    def __init__(self, directory: Directory, failed: FailedAuthentications, *, clock: Clock = now_ms) -> None:
        self._directory = directory
        self._failed = failed
        self._clock = clock

    async def authenticate(self, credentials: ClientCredentials, *, address: str) -> ApplicationState:
        """Return the client; a failure is checked again after catching up with the bus, and counted.

        Raises:
            OAuthError: ``invalid_client``, the same for every reason; 429 beyond the limits of the address.
        """
        client = self._authentic(credentials)
        if client is not None:
            return client
        self._failed.require_room(credentials.client_id, address)
        await self._directory.catch_up()
        client = self._authentic(credentials)
        if client is not None:
            return client
        is_known = self._directory.in_memory.application(credentials.client_id) is not None
        await self._failed.count(credentials.client_id, address, is_known=is_known)
        raise invalid_client()

    def _authentic(self, credentials: ClientCredentials) -> ApplicationState | None:
        client = self._directory.in_memory.application(credentials.client_id)
        return client if is_authentic(client, credentials, now=self._clock()) else None
