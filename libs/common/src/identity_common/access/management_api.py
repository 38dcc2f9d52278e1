"""Who may call ``/api``: bearer tokens of our own issuer for the Management API, with a scope that opens the path.

Owns the refusals 401 and 403 that all services share (RFC 6750 section 3), and that a revoked token is refused. Does
not own how a token is verified (``stead``), nor whether whom it speaks for is still there: each service asks
what it has.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final

from litestar.connection import ASGIConnection
from litestar.types import Scope

from identity_common.access.revocations import CopyNotWhole, RevocationReader
from identity_common.http.api_errors import RETRY_AFTER_S, ApiError, Issue, invalid_input, store_unavailable
from identity_common.http.request_headers import header_values
from identity_common.stores.redis import StoreUnavailable
from identity_common.telemetry.logs import get_logger
from stead import AccessToken, AsyncAccessTokenVerifier, TokenInvalid, Unavailable

_log = get_logger(__name__)

SCOPE_ALL: Final = "all"
SCOPE_SUBJECT_TOKENS: Final = "subject-tokens"

Connection = ASGIConnection[Any, Any, Any, Any]
Verify = Callable[[str], Awaitable[AccessToken]]

_TRUSTED_S: Final = 60.0
_MOST_REMEMBERED: Final = 10_000


def _unauthenticated(code: str, message: str, challenge: str = "Bearer") -> ApiError:
    return ApiError(401, code, message, headers={"WWW-Authenticate": challenge})


def unauthorized() -> ApiError:
    """401: the token is not, or no longer, good; the answer does not say why."""
    return _unauthenticated("auth.unauthorized", "The access token is not accepted.", 'Bearer error="invalid_token"')


def forbidden() -> ApiError:
    """403: the token is good, and not for this."""
    challenge = 'Bearer error="insufficient_scope"'
    message = "The access token does not open this part of the Management API."
    return ApiError(403, "auth.forbidden", message, headers={"WWW-Authenticate": challenge})


class UnrevokedTokens:
    """Verifies access tokens, and refuses those that were revoked.

    While Redis does not answer, a token that was good within the last minute stays good: long enough for a failover,
    and nothing can be revoked meanwhile. Any other is refused with 503; so is every token while the copy of the
    revocations is being made again, which takes two seconds.
    """

    def __init__(
        self,
        verifier: AsyncAccessTokenVerifier,
        revocations: RevocationReader,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._verifier = verifier
        self._revocations = revocations
        self._clock = clock
        self._good_at: OrderedDict[str, float] = OrderedDict()

    async def verify(self, access_token: str, *, audience: str | None = None) -> AccessToken:
        """Return what a token says that is good and was not revoked.

        Args:
            access_token: As presented.
            audience: What it must be for, if not what the verifier was made for.

        Raises:
            TokenInvalid: It is not good.
            Unavailable: The issuer's keys cannot be read.
            ApiError: 401 when it was revoked, 503 when that cannot be known.
        """
        token = await self.signed(access_token, audience=audience)
        await self.require_unrevoked(token)
        return token

    async def signed(self, access_token: str, *, audience: str | None = None) -> AccessToken:
        """Do the first half of ``verify``: the token is good, and may have been revoked."""
        # one of a member of an organization is good as well, and whether it is for this is judged later
        return await self._verifier.verify(access_token, audience=audience, organization_aware=True)

    async def require_unrevoked(self, token: AccessToken) -> None:
        """Do the second half of ``verify``."""
        try:
            is_revoked = await self._revocations.is_revoked(token.id)
        except StoreUnavailable as error:
            if isinstance(error, CopyNotWhole) or not self._was_good(token.id):
                _log.warning("store.unavailable", store="redis", error=str(error))
                raise store_unavailable() from None
            return
        if is_revoked:
            self._good_at.pop(token.id, None)
            raise unauthorized()
        self._remember(token.id)

    def _was_good(self, token_id: str) -> bool:
        return self._clock() - self._good_at.get(token_id, float("-inf")) <= _TRUSTED_S

    def _remember(self, token_id: str) -> None:
        self._good_at[token_id] = self._clock()
        self._good_at.move_to_end(token_id)
        if len(self._good_at) > _MOST_REMEMBERED:
            self._good_at.popitem(last=False)


def bearer_token(authorization: list[str]) -> str:
    """Return the token of the ``Authorization`` header (RFC 6750 section 2.1).

    Raises:
        ApiError: 401 when there is none, another scheme, or more than one.
    """
    if not authorization:
        raise _unauthenticated("auth.authorization_header_missing", "The Authorization header is missing.")
    if len(authorization) > 1:
        raise unauthorized()
    scheme, _, token = authorization[0].partition(" ")
    if scheme.lower() != "bearer":
        raise _unauthenticated("auth.authorization_token_type_not_supported", "The Authorization type must be Bearer.")
    return token.strip(" ")


def require_scope(token: AccessToken, *, one_of: frozenset[str]) -> None:
    """Refuse a token that holds none of the scopes.

    Refuse every token of somebody who acts as somebody else, or as a member of one organization.

    Raises:
        ApiError: 403.
    """
    if token.actor is not None or token.organization_id is not None or token.scopes.isdisjoint(one_of):
        raise forbidden()


async def verified(scope: Scope, verify: Verify) -> AccessToken:
    """Return the access token of a request, verified.

    Raises:
        ApiError: 401, or 503 when the issuer's keys cannot be read.
    """
    try:
        return await verify(bearer_token(header_values(scope, b"authorization")))
    except TokenInvalid:
        raise unauthorized() from None
    except Unavailable:
        message = "The keys of the issuer of access tokens cannot be read. Try again later."
        headers = {"Retry-After": str(RETRY_AFTER_S)}
        raise ApiError(503, "temporarily_unavailable", message, headers=headers) from None


def require_storable_path(scope: Scope) -> None:
    """Refuse a path that no database looks up.

    Raises:
        ApiError: 400.
    """
    if "\0" in scope["path"]:
        raise invalid_input(Issue(path="", message="a NUL character is not allowed in a path"))


async def authenticate(scope: Scope, verify: Verify, *, one_of: frozenset[str]) -> AccessToken:
    """Return the access token of a request that may go on as far as its token is concerned.

    Args:
        scope: The request.
        verify: Verifies a token for the Management API.
        one_of: The scopes of which the token must hold one.

    Raises:
        ApiError: 401, 403, or 503 when the issuer's keys cannot be read.
    """
    token = await verified(scope, verify)
    require_scope(token, one_of=one_of)
    require_storable_path(scope)
    return token


async def recognize(scope: Scope, tokens: UnrevokedTokens, *, one_of: frozenset[str]) -> AccessToken:
    """Do as ``authenticate`` does, but leave it to the caller to ask whether the token was revoked.

    Who is refused for what the token says is asked right here: 401 goes before 403.

    Raises:
        ApiError: 401, 403, or 503 when the issuer's keys or, for a refusal, the revocations cannot be read.
    """
    token = await verified(scope, tokens.signed)
    try:
        require_scope(token, one_of=one_of)
        require_storable_path(scope)
    except ApiError:
        await tokens.require_unrevoked(token)
        raise
    return token
