"""Callers of the Management API, and the scopes of their access tokens."""

from contextvars import ContextVar
from typing import Final

import msgspec

from identity_common.rights.scopes import implied


class Caller(msgspec.Struct, frozen=True):
    """Who sent a request that was admitted.

    Attributes:
        application_id: The application.
        user_id: The user that it acts for; None if it acts for itself.
        token_id: ``jti`` of the access token; empty for the author of something stored.
        scopes: Of the access token; empty for the author of something stored.
        auth_time: When the user signed in, seconds since the epoch; None in tokens that do not say so.
        is_own_account: Whether the request is about the user's own account (``access/own_sign_in.py``).
    """

    application_id: str
    user_id: str | None = None
    token_id: str = ""
    scopes: frozenset[str] = frozenset()
    auth_time: int | None = None
    is_own_account: bool = False

    def owns_account(self, user_id: str) -> bool:
        """Return whether the request is of this user, about their own account."""
        return self.is_own_account and self.user_id == user_id

    def may(self, scope: str) -> bool:
        """Return whether the scopes of the token include this one."""
        return scope in implied(self.scopes)


ADMITTED: Final[ContextVar[Caller | None]] = ContextVar("admitted", default=None)


def admitted() -> Caller | None:
    """Return the caller of the current request; None in commands, in background work and without an access token."""
    return ADMITTED.get()
