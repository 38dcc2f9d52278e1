"""The checks that a proxy requests, and the headers of the response.

A check is ``/check/<scopes>``, or ``/check-in-organization/<scopes>`` where the API compares ``X-Auth-Organization``
with the organization that a request is about. ``<scopes>`` is ``-`` for any token, else the required scope,
percent-encoded; several are joined by ``%20``. What follows ``/~`` is ignored: Envoy appends the client's own path and
query.
"""

from __future__ import annotations

import functools
import re
from typing import Final
from urllib.parse import unquote_to_bytes

from stead import AccessToken, ActorAuthentication
from stead.verify.proxied import (
    ACR,
    ACTOR,
    ACTOR_ACR,
    ACTOR_TIME,
    ORGANIZATION,
    SCOPE,
    SUBJECT,
    TIME,
    written,
    written_scopes,
    written_seconds,
)

_CHECK: Final = re.compile(rb"/check(-in-organization)?/([^/?]+)(?:/~(?:/.*)?)?", re.DOTALL)
_SCOPE_TOKEN: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # RFC 6749 section 3.3
_NO_SCOPE: Final = "-"


class Check:
    """The requirements of one address on a token.

    Attributes:
        scopes: All of which the token must have; may be empty.
        organization_aware: Whether a token that is valid within one organization only is acceptable.
    """

    __slots__ = ("organization_aware", "scopes")

    def __init__(self, scopes: frozenset[str], *, organization_aware: bool) -> None:
        self.scopes = scopes
        self.organization_aware = organization_aware


def check_at(raw_path: bytes) -> Check | None:
    """Return the check of an address as it was sent; None if it is not one.

    The path is never normalised: what a client appends, ``/../`` included, cannot change the scope.
    """
    address = _CHECK.fullmatch(raw_path)
    return None if address is None else _check(address[2], address[1] is not None)


@functools.lru_cache(maxsize=256)
def _check(scopes: bytes, organization_aware: bool) -> Check | None:
    text = unquote_to_bytes(scopes).decode("latin-1")
    required = [] if text == _NO_SCOPE else text.split(" ")
    if not all(map(_SCOPE_TOKEN.fullmatch, required)):
        return None
    return Check(frozenset(required), organization_aware=organization_aware)


def identity_headers(token: AccessToken) -> list[tuple[bytes, bytes]]:
    """Return the headers that tell who the caller is and how it and its actor signed in: always all, each with a value.

    An omitted or empty one could not be told from one that an intermediary deleted because a client listed it in
    ``Connection``, and some proxies would forward the client's own in its place.
    """
    actor_signed_in = token.actor_authentication or ActorAuthentication()
    told = {
        SUBJECT: written(token.subject),
        ACTOR: written(None if token.actor is None else token.actor["sub"]),
        SCOPE: written_scopes(token.scopes),
        ORGANIZATION: written(token.organization_id),
        ACR: written(token.acr),
        TIME: written_seconds(token.auth_time),
        ACTOR_ACR: written(actor_signed_in.acr),
        ACTOR_TIME: written_seconds(actor_signed_in.auth_time),
    }
    return [(name.encode(), value.encode()) for name, value in told.items()]
