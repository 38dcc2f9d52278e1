"""Who may read what a member may do: the member itself, by an organization token, and callers of the Management API."""

from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec
from litestar.handlers import BaseRouteHandler
from litestar.types import Scope

from identity_common.access.management_api import (
    SCOPE_ALL,
    Connection,
    SignedToken,
    UnrevokedTokens,
    forbidden,
    require_scope,
    require_storable_path,
    verified,
)
from stead import AccessToken, TokenInvalid

T = TypeVar("T")

_ALL: Final = frozenset({SCOPE_ALL})


class _Payload(msgspec.Struct):
    aud: str


_payload = msgspec.json.Decoder(_Payload)


class Readers:
    """Judges the access token of a request for what one member may do. Does not own whether the caller is live.

    Args:
        tokens: Verifies them.
        management_api: Audience of tokens for the Management API.
        urn_namespace: An organization token's audience is ``urn:{urn_namespace}:organization:{id}``, and nothing else:
            a token for a resource within the organization is none (lesson L4).
    """

    def __init__(self, tokens: UnrevokedTokens, *, management_api: str, urn_namespace: str) -> None:
        self._tokens = tokens
        self._management_api = management_api
        self._organization = f"urn:{urn_namespace}:organization:"

    async def authenticate(self, scope: Scope, organization_id: str, member_id: str) -> AccessToken:
        """Return the access token of somebody who may read.

        An organization token that comes from an exchange, and has an actor, reads what its subject may do: no more than
        it says itself. A Management API token with an actor opens nothing.

        Raises:
            ApiError: 401; 403 for another good token of ours; 503 when the issuer's keys, or the revocations, cannot be
                read.
        """
        token = await verified(scope, _as_it_says(self._tokens.verify))
        self._require_reader(token, organization_id, member_id)
        require_storable_path(scope)
        return token

    async def recognize(self, scope: Scope, organization_id: str, member_id: str) -> SignedToken:
        """Do the same, but for asking whether the token was revoked: ``require_unrevoked`` is to follow."""
        token = await verified(scope, _as_it_says(self._tokens.signed))
        self._require_reader(token.claims, organization_id, member_id)
        return token

    async def require_unrevoked(self, token: SignedToken) -> None:
        """Refuse a token that was revoked.

        Raises:
            ApiError: 401, or 503 when that cannot be known.
        """
        await self._tokens.require_unrevoked(token)

    def _require_reader(self, token: AccessToken, organization_id: str, member_id: str) -> None:
        if token.audience == self._management_api:
            require_scope(token, one_of=_ALL)
        elif token.audience != self._organization + organization_id or token.subject != member_id:
            raise forbidden()


def _as_it_says(verify: Callable[..., Awaitable[T]]) -> Callable[[str], Awaitable[T]]:
    """Return what verifies a token for whatever audience it says: form, signature, time and claims count all the same.

    What it may be used for is for the caller to say, by the audience of what is returned.
    """
    return lambda token: verify(token, audience=_said_audience(token))


def _said_audience(token: str) -> str:
    """Return what a token that nobody has judged yet says that it is for."""
    try:
        payload = token.split(".")[1]
        audience = _payload.decode(urlsafe_b64decode(payload + "==")).aud
    except (IndexError, ValueError, RecursionError):
        raise TokenInvalid("malformed") from None
    if not audience.strip():
        raise TokenInvalid("wrong_audience")
    return audience


async def require_reader(connection: Connection, _: BaseRouteHandler) -> None:
    """Guard: somebody whose token lets read what the member of the path may do; whether it is live is asked later."""
    connection.scope["auth"] = await authenticated_reader(connection)


async def authenticated_reader(connection: Connection) -> AccessToken:
    """Return the access token of a request for what the member of its path may do.

    Raises:
        ApiError: 401, 403, 503.
    """
    readers: Readers = connection.app.state.readers
    path = connection.path_params
    member_id = path["user_id"] if "user_id" in path else path["application_id"]
    return await readers.authenticate(connection.scope, path["organization_id"], member_id)
