"""Who may call ``/api``: live callers with an access token of our own issuer for the Management API and its scope.

Owns the errors 401 and 403 that all services share (RFC 6750 section 3), the order of the checks, and the refusal of
revoked tokens. Does not own how a token is verified (``stead``), nor where a service looks up whether a caller is live.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import Scope

from identity_common.access.callers import ADMITTED, Caller
from identity_common.access.revocations import CopyNotWhole, RevocationReader
from identity_common.failures import AnyFailure, Issue, StoreUnavailable, TemporarilyUnavailable, invalid_input
from identity_common.http.auditing import audit_request
from identity_common.http.client_address import client_address
from identity_common.http.if_match import Versions
from identity_common.http.pagination import parse_query
from identity_common.http.problems import ApiError
from identity_common.http.request_headers import header_values
from identity_common.rights.operations import PARAMETERS, REQUIREMENTS, Requirement
from stead import AccessToken, AsyncAccessTokenVerifier, TokenInvalid, Unavailable
from stead.verify.impersonations import Impersonation

AUTHORIZATION: Final = b"authorization"

REFUSALS: Final = (AnyFailure, ApiError)
"""What refuses a request, for ``except``."""

Connection = ASGIConnection[Any, Any, Any, Any]
T = TypeVar("T")

Verify = Callable[[str], Awaitable[AccessToken]]
"""Returns the contents of an access token; raises ``TokenInvalid``, ``Unavailable`` or a refusal."""

_GRACE_S: Final = 60.0
_MAX_REMEMBERED: Final = 10_000


def _unauthenticated(code: str, message: str, challenge: str = "Bearer") -> ApiError:
    return ApiError(401, code, message, headers={"WWW-Authenticate": challenge})


def unauthorized() -> ApiError:
    """401: the token is invalid, expired or revoked; the response does not say which."""
    return _unauthenticated("auth.unauthorized", "The access token is invalid.", 'Bearer error="invalid_token"')


def forbidden(needed: Requirement | None = None, *, of: str = "it") -> ApiError:
    """403: the token is valid but does not grant access; the message names the scopes that would."""
    challenge = 'Bearer error="insufficient_scope"'
    missing = f": {of} needs {needed}" if needed else ""
    message = f"The access token does not grant access to this part of the Management API{missing}."
    return ApiError(403, "auth.forbidden", message, headers={"WWW-Authenticate": challenge})


class SignedToken(msgspec.Struct, frozen=True):
    """A valid access token that may have been revoked: not yet a reason to admit its caller.

    Attributes:
        claims: The contents; nothing may be granted because of them yet.
    """

    claims: AccessToken


class UnrevokedTokens:
    """Verifies access tokens and refuses revoked ones.

    While Redis does not answer, a token that was accepted within the last minute stays accepted: long enough for a
    failover, and nothing can be revoked meanwhile. Any other token gets 503, including one with the ``jti`` of an
    accepted token but signed with another key. While the copy of the revocations is being rebuilt, which takes two
    seconds, every token gets 503.
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
        self._accepted_at: OrderedDict[tuple[str, str], float] = OrderedDict()

    async def verify(self, access_token: str, *, audience: str | None = None) -> AccessToken:
        """Return the contents of a token that is valid and not revoked.

        Args:
            access_token: As presented.
            audience: Required audience; that of the verifier by default.

        Raises:
            TokenInvalid: The token is not valid.
            Unavailable: The issuer's keys cannot be read.
            ApiError: 401 for a revoked token.
            StoreUnavailable: The revocations cannot be read.
        """
        return await self.require_unrevoked(await self.signed(access_token, audience=audience))

    async def signed(self, access_token: str, *, audience: str | None = None) -> SignedToken:
        """Verify a token except for its revocation: the first half of ``verify``.

        Raises:
            TokenInvalid: The token is not valid.
            Unavailable: The issuer's keys cannot be read.
        """
        # Tokens for a resource within an organization are valid here; ``require_scope`` refuses them.
        token = await self._verifier.verify(access_token, audience=audience, organization_aware=True)
        return SignedToken(token)

    async def require_unrevoked(self, signed: SignedToken) -> AccessToken:
        """Return the contents of a token unless it was revoked: the second half of ``verify``.

        Raises:
            ApiError: 401 for a revoked token.
            StoreUnavailable: The revocations cannot be read.
        """
        token = signed.claims
        checked = (token.id, token.key_id)
        try:
            is_revoked = await self._revocations.is_revoked(*checked, Impersonation.of(token))
        except StoreUnavailable as error:
            if isinstance(error, CopyNotWhole) or not self._was_accepted(checked):
                raise
            return token
        if is_revoked:
            self._accepted_at.pop(checked, None)
            raise unauthorized()
        self._remember(checked)
        return token

    def _was_accepted(self, checked: tuple[str, str]) -> bool:
        return self._clock() - self._accepted_at.get(checked, float("-inf")) <= _GRACE_S

    def _remember(self, checked: tuple[str, str]) -> None:
        self._accepted_at[checked] = self._clock()
        self._accepted_at.move_to_end(checked)
        if len(self._accepted_at) > _MAX_REMEMBERED:
            self._accepted_at.popitem(last=False)


def bearer_token(authorization: Sequence[str]) -> str:
    """Return the token of the ``Authorization`` header (RFC 6750 section 2.1).

    Raises:
        ApiError: 401 if the header is missing or repeated, or has another scheme.
    """
    if not authorization:
        raise _unauthenticated("auth.authorization_header_missing", "The Authorization header is missing.")
    if len(authorization) > 1:
        raise unauthorized()
    scheme, _, token = authorization[0].partition(" ")
    if scheme.lower() != "bearer":
        raise _unauthenticated(
            "auth.authorization_token_type_not_supported", "The Authorization scheme must be Bearer."
        )
    return token.strip(" ")


def require_scope(token: AccessToken, needed: Requirement) -> None:
    """Refuse a token without a scope that an operation needs, and any token with an actor or an organization.

    Raises:
        ApiError: 403.
    """
    if token.actor is not None or token.organization_id is not None:
        raise forbidden()
    if not needed.is_met_by(token.scopes):
        raise forbidden(needed)


def auth_time_of(token: AccessToken) -> int | None:
    """Return when the subject of a token signed in, seconds since the epoch; None if the token does not say so."""
    auth_time = token.claims.get("auth_time")
    return auth_time if type(auth_time) is int else None


async def verified(authorization: Sequence[str], verify: Callable[[str], Awaitable[T]]) -> T:
    """Return the contents of the access token in the ``Authorization`` header.

    Args:
        authorization: The lines of the header.
        verify: Verifies a token.

    Raises:
        ApiError: 401.
        TemporarilyUnavailable: The issuer's keys cannot be read.
    """
    try:
        return await verify(bearer_token(authorization))
    except TokenInvalid:
        raise unauthorized() from None
    except Unavailable:
        message = "The issuer's keys are temporarily unavailable. Try again later."
        raise TemporarilyUnavailable(message) from None


def require_storable_path(scope: Scope) -> None:
    """Refuse a path that no database can look up."""
    if "\0" in scope["path"]:
        raise invalid_input(Issue(path="", message="must not contain NUL characters"))


class Access:
    """Admits callers to a part of a service.

    Args:
        verify: Verifies a token for this part and that it is not revoked.
        is_live: Returns whether the token's client and user are live; None if ``verify`` checks that too.
        trusted_proxies: How many proxies in front of the service append to ``X-Forwarded-For``.
    """

    def __init__(
        self,
        verify: Verify,
        is_live: Callable[[AccessToken], Awaitable[bool]] | None = None,
        *,
        trusted_proxies: int,
    ) -> None:
        self.trusted_proxies = trusted_proxies
        self._verify = verify
        self._is_live = is_live

    async def require(self, scope: Scope, permit: Callable[[AccessToken], None]) -> Caller:
        """Return the caller of a request; refuse it unless it is live and its token permits the request.

        Args:
            scope: Of the request.
            permit: Raises an ``ApiError`` for a token that does not permit the request.

        Raises:
            ApiError: 401, 403.
            Invalid: The path has a NUL character.
            TemporarilyUnavailable: The keys or a store cannot be read.
        """
        token = await verified(header_values(scope, AUTHORIZATION), self._verify)
        permit(token)
        require_storable_path(scope)
        if self._is_live is not None and not await self._is_live(token):
            raise unauthorized()
        user_id = None if token.subject == token.client_id else token.subject
        return Caller(token.client_id, user_id, token.id, token.scopes, auth_time_of(token))

    def admit(self, connection: Connection, handler: BaseRouteHandler, caller: Caller) -> None:
        """Pass the caller to the handler, and to the audit trail for a request that writes."""
        connection.state.caller = caller
        ADMITTED.set(caller)
        if connection.scope.get("method") != "GET":
            audit_request(
                connection.scope,
                handler,
                application_id=caller.application_id,
                user_id=caller.user_id,
                token_id=caller.token_id,
                address=client_address(connection.scope, trusted_proxies=self.trusted_proxies),
            )


async def require_management(connection: Connection, handler: BaseRouteHandler) -> None:
    """Guard: a live caller with a scope that the operation needs; ``admitted_caller`` returns it to the handler.

    A write of the request is then recorded in the audit trail, and is carried out only if its ``If-Match`` holds.
    """
    access: Access = connection.app.state.management_access
    needed = REQUIREMENTS[handler.operation_id]  # type: ignore[attr-defined]  # of every handler with this guard
    caller = await access.require(connection.scope, partial(require_scope, needed=needed))
    _require_parameters(connection, PARAMETERS.get(handler.operation_id), caller)  # type: ignore[attr-defined]
    access.admit(connection, handler, caller)
    versions: Versions = connection.app.state.versions
    await versions.require(connection.scope)


def _require_parameters(connection: Connection, needed: Mapping[str, Requirement] | None, caller: Caller) -> None:
    """Refuse a query parameter that tells more than the caller may read.

    Raises:
        ApiError: 403.
    """
    query_string: bytes = connection.scope["query_string"]
    if not needed or not query_string:
        return
    for name, _ in parse_query(query_string):
        if name in needed and not needed[name].is_met_by(caller.scopes):
            raise forbidden(needed[name], of=f"the parameter {name}")


def admitted_caller(request: Connection) -> Caller:
    """Return the caller that ``require_management`` has admitted; a dependency of handlers."""
    caller: Caller = request.state.caller
    return caller


async def recognize(scope: Scope, tokens: UnrevokedTokens, needed: Requirement) -> SignedToken:
    """Return the access token of a request, which has a scope that it needs but may have been revoked.

    Before it refuses, it checks for the revocation: 401 precedes 403.

    Raises:
        ApiError: 401, 403.
        Invalid: The path has a NUL character.
        TemporarilyUnavailable: The issuer's keys or, for a refusal, the revocations cannot be read.
    """
    token = await verified(header_values(scope, AUTHORIZATION), tokens.signed)
    try:
        require_scope(token.claims, needed)
        require_storable_path(scope)
    except REFUSALS:
        await tokens.require_unrevoked(token)
        raise
    return token
