"""Checks the caller that mints a subject token; the last check shares the round trip to Redis that stores the token."""

import msgspec
from litestar.types import Scope

from identity_common.access.management_api import MINTING, SignedToken
from management_service.authentication import Authentication, NamedUser


class Caller(msgspec.Struct, frozen=True):
    """A caller that passed every check; only ``CallerCheck.finish`` makes one."""

    client_id: str


class CallerCheck:
    """The unfinished check of a caller: its token is valid and opens this path, but may have been revoked."""

    def __init__(self, authentication: Authentication, token: SignedToken) -> None:
        self._authentication = authentication
        self._token = token
        self._is_live = False

    @classmethod
    async def begin(cls, authentication: Authentication, scope: Scope) -> "CallerCheck":
        """Verify the access token of a request.

        Raises:
            ApiError: 401, 403, or 503 when the issuer's keys cannot be read.
        """
        return cls(authentication, await authentication.recognize(scope, one_of=MINTING))

    @property
    def client_id(self) -> str:
        """The ``client_id`` of the token, whose check is not finished."""
        return self._token.claims.client_id

    @property
    def user_id(self) -> str | None:
        """The user that the caller acts for; None if it acts for itself."""
        claims = self._token.claims
        return None if claims.subject == claims.client_id else claims.subject

    @property
    def token_id(self) -> str:
        """The ``jti`` of the token."""
        return self._token.claims.id

    async def named_user(self, user_id: str) -> NamedUser:
        """Check in the database that the caller still exists; return a user from the same statement.

        Raises:
            ApiError: 401, or 503 when the database does not answer.
        """
        user = await self._authentication.named_user(self._token.claims, user_id)
        self._is_live = True
        return user

    async def require_unrevoked(self) -> None:
        """Refuse a revoked token.

        Raises:
            ApiError: 401, or 503 when Redis does not answer.
        """
        await self._authentication.require_unrevoked(self._token)

    async def finish(self) -> Caller:
        """Make the remaining checks: of revocation in Redis, and in the database unless ``named_user`` made it.

        Raises:
            ApiError: 401, or 503 when a store does not answer.
        """
        await self.require_unrevoked()
        if not self._is_live:
            await self._authentication.require_live_caller(self._token.claims)
        return Caller(self._token.claims.client_id)
