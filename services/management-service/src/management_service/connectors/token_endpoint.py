"""The calls to a provider that redeem a code: the token endpoint, and userinfo for claims that are not in the ID token.

Source:
    OpenID Connect Core 1.0 sections 3.1.3 and 5.3; RFC 6749 sections 2.3.1 and 4.1.3; RFC 7636 section 4.5.
"""

import base64
import json
import re
from typing import Any, Final
from urllib.parse import quote

import msgspec

from identity_common.outgoing import OutgoingAnswer, OutgoingCallError, OutgoingCalls
from management_service.connectors.id_tokens import NotAcceptableError
from management_service.connectors.providers import Client, Metadata, ProviderError

_ERROR: Final = re.compile(r"[\x20-\x7e]{1,100}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750 section 2.1


class CodeRefusedError(Exception):
    """The provider refused a code; the text is for the log."""


class Redeemed(msgspec.Struct, frozen=True):
    """What a code was redeemed for."""

    id_token: str
    access_token: str | None = None

    def __repr__(self) -> str:
        """Hide the tokens."""
        return "Redeemed(…)"


_decode_redeemed: Final = msgspec.json.Decoder(Redeemed).decode


class TokenEndpoints:
    """The token endpoints of providers, and their userinfo."""

    def __init__(self, calls: OutgoingCalls) -> None:
        self._calls = calls

    async def redeem(
        self, metadata: Metadata, client: Client, *, code: str, code_verifier: str, redirect_uri: str
    ) -> Redeemed:
        """Redeem a code.

        Raises:
            CodeRefusedError: The provider refuses it, or the client.
            NotAcceptableError: The answer has no ID token.
            ProviderError: There is no answer.
        """
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": code_verifier,
        }
        headers = {}
        if client.secret is not None and "client_secret_basic" in metadata.token_auth_methods:
            headers["Authorization"] = _basic(client.id, client.secret)
        else:
            form["client_id"] = client.id
            if client.secret is not None:
                form["client_secret"] = client.secret
        try:
            answer = await self._calls.post_form(metadata.token_endpoint or "", form, headers)
        except OutgoingCallError as error:
            raise ProviderError(f"The code cannot be redeemed. {error}") from error
        _require_redeemed(answer)
        try:
            return _decode_redeemed(answer.content)
        except (msgspec.DecodeError, RecursionError):
            raise NotAcceptableError("the answer has no ID token") from None

    async def userinfo(self, metadata: Metadata, redeemed: Redeemed, *, subject: str) -> dict[str, Any]:
        """Return more claims of the person whom an ID token is about; none where the provider offers none.

        Raises:
            NotAcceptableError: They are those of another person, or no claims.
            ProviderError: There is no answer.
        """
        token = redeemed.access_token
        if metadata.userinfo_endpoint is None or token is None or not _TOKEN.fullmatch(token):
            return {}
        try:
            answer = await self._calls.get(metadata.userinfo_endpoint, {"Authorization": f"Bearer {token}"})
        except OutgoingCallError as error:
            raise ProviderError(f"The claims cannot be read. {error}") from error
        if answer.status != 200:
            raise ProviderError(f"The claims cannot be read: status {answer.status}.")
        try:
            claims = json.loads(answer.content)
        except (ValueError, RecursionError):
            raise NotAcceptableError("userinfo is not JSON") from None
        if not isinstance(claims, dict) or claims.get("sub") != subject:  # Core section 5.3.2
            raise NotAcceptableError("userinfo of another person")
        return claims


def _basic(client_id: str, secret: str) -> str:
    encoded = (quote(each, safe="") for each in (client_id, secret))  # %20 for a space: Authlib takes + for itself
    return f"Basic {base64.b64encode(':'.join(encoded).encode()).decode()}"


def _require_redeemed(answer: OutgoingAnswer) -> None:
    if answer.status == 429 or answer.status >= 500:
        raise ProviderError(f"The code cannot be redeemed: status {answer.status}.")
    if answer.status != 200:
        raise CodeRefusedError(f"status {answer.status}, {_error_of(answer.content)}")


def _error_of(content: bytes) -> str:
    """Return the error code of an answer; its other texts may be about the person."""
    try:
        error = json.loads(content)["error"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return "no error code"
    return error if isinstance(error, str) and _ERROR.fullmatch(error) else "no error code"
