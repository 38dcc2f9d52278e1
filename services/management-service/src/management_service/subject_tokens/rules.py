"""The request body, and the format of subject tokens."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from identity_common.identifiers import new_secret
from identity_common.names import is_blank
from identity_common.wire.subject_tokens import PREFIX

MAX_CONTEXT_BYTES: Final = 16 * 1024


class SubjectTokenCreation(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A subject token to be minted.

    Attributes:
        user_id: The user to be impersonated: ``sub`` of the access token.
        context: Free-form object of the integrator, at most 16 KiB of JSON; stored with the token.
    """

    user_id: str
    context: dict[str, Any] = {}


def new_subject_token() -> str:
    """Return a new token: ``sub_`` and 43 characters of ``[0-9A-Za-z]``, 256 random bits."""
    return PREFIX + new_secret()


def missing_context(context: Mapping[str, Any], required: Iterable[str]) -> list[str]:
    """Return the required members that a context lacks: missing, not a string, or blank."""
    return [name for name in required if not (isinstance(value := context.get(name), str) and not is_blank(value))]


def context_is_too_large(context: bytes) -> bool:
    """Return whether a context, as JSON, exceeds the limit."""
    return len(context) > MAX_CONTEXT_BYTES
