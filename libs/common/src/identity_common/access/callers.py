"""Callers of the Management API, and the scopes of their access tokens. Pure."""

from typing import Final

import msgspec

from identity_common.rights.scopes import SCOPE_ALL, SCOPE_READ, SCOPE_SUBJECT_TOKENS

READING: Final = frozenset({SCOPE_ALL, SCOPE_READ})
"""Any of these scopes allows GET and HEAD."""
CHANGING: Final = frozenset({SCOPE_ALL})
"""Any of these scopes allows every method."""
MINTING: Final = frozenset({SCOPE_ALL, SCOPE_SUBJECT_TOKENS})
"""Any of these scopes allows minting subject tokens."""


class Caller(msgspec.Struct, frozen=True):
    """Who sent a request that was admitted.

    Attributes:
        application_id: The application.
        user_id: The user that it acts for; None if it acts for itself.
        token_id: ``jti`` of the access token; empty for the author of something stored.
        scopes: Of the access token; empty for the author of something stored.
    """

    application_id: str
    user_id: str | None = None
    token_id: str = ""
    scopes: frozenset[str] = frozenset()
