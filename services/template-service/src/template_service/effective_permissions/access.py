"""Who may read what a member may do: the member itself, by an organization token, and callers of the Management API."""

from base64 import urlsafe_b64decode
from typing import Final

import msgspec
from litestar.handlers import BaseRouteHandler

from identity_common.management_access import (
    SCOPE_ALL,
    Connection,
    UnrevokedTokens,
    forbidden,
    require_scope,
    require_storable_path,
    verified,
)
from identity_sdk import AccessToken, TokenInvalid

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

    async def authenticate(self, connection: Connection, organization_id: str, member_id: str) -> AccessToken:
        """Return the access token of somebody who may read.

        An organization token that comes from an exchange, and has an actor, reads what its subject may do: no more than
        it says itself. A Management API token with an actor opens nothing.

        Raises:
            ApiError: 401; 403 for another good token of ours; 503 when the issuer's keys, or the revocations, cannot be
                read.
        """
        token = await verified(connection, self._verify)
        if token.audience == self._management_api:
            require_scope(token, one_of=_ALL)
        elif token.audience != self._organization + organization_id or token.subject != member_id:
            raise forbidden()
        require_storable_path(connection)
        return token

    async def _verify(self, token: str) -> AccessToken:
        """Verify a token for whatever audience it says: its form, signature, time and claims count all the same.

        What it may be used for is for the caller to say, by the audience of what is returned.
        """
        return await self._tokens.verify(token, audience=_said_audience(token))


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
    return await readers.authenticate(connection, path["organization_id"], member_id)
