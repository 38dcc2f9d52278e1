"""The caller of a request behind a proxy that asked the verifier process (docs/guides/proxy.md).

Owns the headers that tell who it is and how they signed in: their names, how values are written, and reading them. A
header is never told by its absence: intermediaries delete what a client lists in ``Connection`` (RFC 9110 section
7.6.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from stead.errors import CallerUnknown

SUBJECT: Final = "x-auth-subject"
ACTOR: Final = "x-auth-actor"
SCOPE: Final = "x-auth-scope"
ORGANIZATION: Final = "x-auth-organization"
ACR: Final = "x-auth-acr"
TIME: Final = "x-auth-time"
ACTOR_ACR: Final = "x-auth-actor-acr"
ACTOR_TIME: Final = "x-auth-actor-time"
HEADERS: Final = (SUBJECT, ACTOR, SCOPE, ORGANIZATION, ACR, TIME, ACTOR_ACR, ACTOR_TIME)

NONE: Final = "-"
"""Value of a header without one; a value that is itself ``-`` is written as ``%2D``."""

_NONE_ESCAPED: Final = "%2D"
_SECONDS: Final = re.compile(r"[0-9]{1,16}")
# A comma would be indistinguishable from a header that is repeated, which servers and proxies join with commas.
_AS_IT_IS: Final = "".join(map(chr, range(0x21, 0x7F))).replace("%", "").replace(",", "")


class ProxiedCaller(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a request, from the access token that the verifier process accepted.

    Attributes:
        subject: ``sub``: the user or application that the request acts for.
        actor: ``act.sub``: the user who acts as the subject; None without impersonation.
        scopes: Of the token; may be empty.
        organization_id: The only organization in which the scopes are valid; None if they are valid everywhere.
        acr: How strongly the subject signed in: ``urn:service:acr:password``, ``urn:service:acr:mfa`` or ``phr``; None
            if it did not, as with applications and impersonations.
        auth_time: When the subject signed in, seconds since the epoch; None if it did not.
        actor_acr: How strongly the actor signed in; None without impersonation, or if that is unknown.
        actor_auth_time: When the actor signed in; likewise.
    """

    subject: str
    actor: str | None
    scopes: frozenset[str]
    organization_id: str | None
    acr: str | None = None
    auth_time: int | None = None
    actor_acr: str | None = None
    actor_auth_time: int | None = None


def proxied_caller(headers: Iterable[tuple[str, str] | tuple[bytes, bytes]]) -> ProxiedCaller:
    """Return the caller of a request that only the proxy can have sent.

    Args:
        headers: All header fields of the request: ``scope["headers"]`` in ASGI, ``request.headers.items()`` elsewhere.

    Raises:
        CallerUnknown: One of the headers is missing, empty, repeated or malformed. Answer 403: another token would not
            help the client, and a client can cause it, so it is not an error of the server.
    """
    told: dict[str, str] = {}
    for name, value in (map(_text, field) for field in headers):
        if name.lower() in HEADERS:
            told[name.lower()] = value.strip() if name.lower() not in told else ""
    for name in HEADERS:
        if not told.get(name) or "," in told[name]:
            raise CallerUnknown(name)
    subject, scope = told[SUBJECT], told[SCOPE]
    if subject == NONE:
        raise CallerUnknown(SUBJECT)
    for name in (TIME, ACTOR_TIME):
        if told[name] != NONE and not _SECONDS.fullmatch(told[name]):
            raise CallerUnknown(name)
    return ProxiedCaller(
        subject=unquote(subject),
        actor=_read(told[ACTOR]),
        scopes=frozenset() if scope == NONE else frozenset(map(unquote, scope.split())),
        organization_id=_read(told[ORGANIZATION]),
        acr=_read(told[ACR]),
        auth_time=_read_seconds(told[TIME]),
        actor_acr=_read(told[ACTOR_ACR]),
        actor_auth_time=_read_seconds(told[ACTOR_TIME]),
    )


def written(value: str | None) -> str:
    """Return the value of a header: ``-`` for None, otherwise percent-encoded where it could be taken for more."""
    if value is None:
        return NONE
    return _NONE_ESCAPED if value == NONE else quote(value, safe=_AS_IT_IS, errors="replace")


def written_seconds(value: float | None) -> str:
    """Return the value of a header with a time: whole seconds since the epoch, ``-`` for None."""
    return NONE if value is None else str(int(value))


def written_scopes(scopes: Iterable[str]) -> str:
    """Return the value of the header with the scopes: separated by spaces, ``-`` without any."""
    return " ".join(map(written, sorted(scopes))) or NONE


def _read(value: str) -> str | None:
    return None if value == NONE else unquote(value)


def _read_seconds(value: str) -> int | None:
    return None if value == NONE else int(value)


def _text(part: str | bytes) -> str:
    return part if isinstance(part, str) else part.decode("latin-1")
