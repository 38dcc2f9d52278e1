"""Checks the caller that mints a subject token; the last check shares the round trip to Redis that stores the token."""

from types import TracebackType
from typing import Self

import msgspec

from identity_common.access.management_api import SignedToken, UnrevokedTokens, unauthorized
from identity_common.failures import AnyFailure
from identity_common.http.problems import ApiError
from management_service.authentication import Authentication, NamedUser


class Caller(msgspec.Struct, frozen=True):
    """A caller that passed every check; only ``CallerCheck.finish`` makes one."""

    client_id: str


class CallerCheck:
    """The unfinished check of a caller: its token is valid and opens this path, but may have been revoked.

    As a context manager, it finishes the check before a refusal leaves the block: a 401 takes precedence.

    Args:
        tokens: Knows which tokens were revoked.
        authentication: Knows which callers are live.
        token: The caller's token.
    """

    def __init__(self, tokens: UnrevokedTokens, authentication: Authentication, token: SignedToken) -> None:
        self._tokens = tokens
        self._authentication = authentication
        self._token = token
        self._was_looked_up = False
        self._was_finished = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if isinstance(error, AnyFailure | ApiError) and not self._was_finished:
            await self.finish()

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
            ApiError: 401.
        """
        self._was_looked_up = True
        user = await self._authentication.named_user(self._token.claims, user_id)
        if user is None:
            raise unauthorized()
        return user

    async def finish(self) -> Caller:
        """Make the remaining checks: of revocation in Redis, and in the database unless ``named_user`` made it.

        Raises:
            ApiError: 401.
        """
        self._was_finished = True
        await self._tokens.require_unrevoked(self._token)
        if not self._was_looked_up and not await self._authentication.is_live(self._token.claims):
            raise unauthorized()
        return Caller(self._token.claims.client_id)
